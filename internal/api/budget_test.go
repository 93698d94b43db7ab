package api

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/tandem-llm/tandem/internal/room"
)

func (b *BodyBudget) readText(body io.Reader, length int64) (string, func(), *room.Cause) {
	r := httptest.NewRequest("POST", "/", body)
	r.ContentLength = length
	text, done, cause := b.Read(httptest.NewRecorder(), r, 0, 0)
	return string(text), done, cause
}

func TestABodyIsChargedUntilItIsDoneWith(t *testing.T) {
	for _, length := range []int64{100_000, -1} {
		b := NewBodyBudget(1 << 20)
		text, done, cause := b.readText(strings.NewReader(strings.Repeat("x", 100_000)), length)
		if cause != nil || len(text) != 100_000 || b.Used() < 100_000 || b.Used() > 200_000 {
			t.Errorf("%d bytes, %d charged: %v", len(text), b.Used(), cause)
		}
		done()
		done()
		if b.Used() != 0 {
			t.Errorf("%d bytes are still charged", b.Used())
		}
	}
}

func TestABodyThatFailsIsNotCharged(t *testing.T) {
	b := NewBodyBudget(1 << 20)
	broken := io.MultiReader(strings.NewReader(strings.Repeat("x", 50_000)), iotest.ErrReader(io.ErrUnexpectedEOF))
	if _, _, cause := b.readText(broken, 100_000); cause == nil || cause.Code != room.ClientGone || b.Used() != 0 {
		t.Errorf("%v, %d charged", cause, b.Used())
	}
}

func TestBodiesBeyondTheBudgetAreRefusedAtOnceAndOthersGoOn(t *testing.T) {
	b := NewBodyBudget(300_000)
	held, done, cause := b.readText(strings.NewReader(strings.Repeat("x", 100_000)), 100_000)
	if cause != nil {
		t.Fatal(cause)
	}
	for _, length := range []int64{250_000, -1} { // announced, and not
		unread := iotest.ErrReader(io.ErrUnexpectedEOF) // nothing beyond the budget is waited for
		body := io.MultiReader(strings.NewReader(strings.Repeat("x", 200_000)), unread)
		_, _, cause := b.readText(body, length)
		if cause == nil || cause.Code != room.QueueFull || !strings.Contains(cause.Detail, "300000 bytes") {
			t.Errorf("length %d: %v", length, cause)
		}
	}
	if _, other, cause := b.readText(strings.NewReader("small"), 5); cause != nil {
		t.Errorf("a small one: %v", cause)
	} else {
		other()
	}
	done()
	if _, again, cause := b.readText(strings.NewReader(held), 100_000); cause != nil || b.Used() < 100_000 {
		t.Errorf("afterwards: %v", cause)
	} else {
		again()
	}
	if b.Used() != 0 {
		t.Errorf("%d bytes are still charged", b.Used())
	}
}

// The attack: many clients that each send a large body slowly, and keep it open.
func TestSlowUploadsTogetherHoldNoMoreThanTheBudget(t *testing.T) {
	const clients, announced = 34, 1 << 20
	b := NewBodyBudget(4 << 20)
	addr := tcpServer(t, func(w http.ResponseWriter, r *http.Request) {
		_, done, cause := b.Read(w, r, 0, 0)
		defer done()
		if cause != nil {
			WriteError(w, cause)
		}
	})
	refused := make(chan string, clients)
	for range clients {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() {
			fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", announced)
			c.Write(make([]byte, announced-1)) // the last byte never comes
		}()
		go func() {
			if line, err := bufio.NewReader(c).ReadString('\n'); err == nil {
				refused <- line
			}
		}()
	}
	patience := time.After(10 * time.Second)
	for n := range clients / 2 { // some answers are lost to the reset of an upload that goes on
		select {
		case line := <-refused:
			if !strings.Contains(line, " 429 ") {
				t.Errorf("answered %q", line)
			}
		case <-patience:
			t.Fatalf("%d clients were refused, with %d bytes held", n, b.Used())
		}
		if used := b.Used(); used > 4<<20+announced { // a refused charge shows for an instant
			t.Fatalf("%d bytes are held", used)
		}
	}
}

func TestABrokenEncodingIsNoClientThatLeft(t *testing.T) {
	for body, want := range map[string]room.Code{
		"zz\r\n{}\r\n0\r\n\r\n":              room.BadRequest, // no hexadecimal length
		"2\r\n{}garbage":                     room.BadRequest, // a chunk longer than it says
		strings.Repeat("f", 20) + "\r\n":     room.BadRequest, // a length beyond 64 bits
		"2\r\n{}\r\n0\r\nno trailer\r\n\r\n": room.BadRequest,
		"2\r\n{":                             room.ClientGone,
		"2\r\n{}\r\n":                        room.ClientGone,
	} {
		head := "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader([]byte(head + body))))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, cause := ReadBody(httptest.NewRecorder(), r, 0, 0); cause == nil || cause.Code != want {
			t.Errorf("%q: %v, want %s", body, cause, want)
		}
	}
}
