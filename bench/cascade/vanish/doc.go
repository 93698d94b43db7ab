// Package vanish is clients that vanish: raw TCP connections that send one HTTP
// request each, read what comes, and then go away in one instant, with a reset
// or with a FIN, as a killed agent's connections do. net/http's own client would
// say goodbye.
//
// The caller owes each Client a Reset or a Leave, and then a Wait.
package vanish
