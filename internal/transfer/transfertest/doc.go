// Package transfertest is the one conformance suite for transports: what the
// contract in package transfer promises, every transport shows here. A rule
// that a transport's own tests hold, and this suite does not, is missing from
// the next transport.
package transfertest
