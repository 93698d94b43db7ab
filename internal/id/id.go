// Package id holds the identities of the hand-over as distinct types, so that
// mixing two of them does not compile. It is the only package of ours that
// package room may import. It holds no logic beyond minting and printing.
package id

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strconv"
)

// Room names one attempt to hand one request's KV over ("bootstrap_room").
// The router mints it, fresh on every attempt; it is never 0 and never reused.
type Room int64

// Generation is decode's nonce for its hand-over of one room. It is carried
// from READY on, so that nothing from an earlier hand-over can match. Never 0.
type Generation uint64

// Incarnation is the random identity of one worker process. A peer that
// returns has a new one, so that nothing old can match. Never 0.
type Incarnation uint64

// LeaseID names the right to use one span of arena bytes. Never 0, never reused
// within a process.
type LeaseID uint64

// SeqID is llama.cpp's sequence number: an index in [0, n_seq_max).
type SeqID int32

// RID is the request's name in logs and APIs. The router mints it; a client's
// own label is never used as identity.
type RID string

// NewRoom returns a random room in [1, 2^63).
func NewRoom() Room {
	for {
		if r := Room(random() >> 1); r != 0 {
			return r
		}
	}
}

// NewGeneration returns a random generation, never 0.
func NewGeneration() Generation { return Generation(nonZero()) }

// NewIncarnation returns a random incarnation, never 0.
func NewIncarnation() Incarnation { return Incarnation(nonZero()) }

// NewRID returns a fresh request id, e.g. "td-3f0c9a2b51d7e84c".
func NewRID() RID { return RID(fmt.Sprintf("td-%016x", nonZero())) }

// String prints a room in decimal, as the HTTP bodies carry it.
func (r Room) String() string { return strconv.FormatInt(int64(r), 10) }

// String prints a generation in hexadecimal.
func (g Generation) String() string { return fmt.Sprintf("%016x", uint64(g)) }

// MarshalText prints an incarnation in JSON as String does: most readers of JSON
// lose the low bits of a number this large.
func (i Incarnation) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// String prints an incarnation in hexadecimal.
func (i Incarnation) String() string { return fmt.Sprintf("%016x", uint64(i)) }

func nonZero() uint64 {
	for {
		if v := random(); v != 0 {
			return v
		}
	}
}

func random() uint64 {
	var b [8]byte
	rand.Read(b[:]) // crypto/rand.Read never fails: it crashes the program instead
	return binary.LittleEndian.Uint64(b[:])
}
