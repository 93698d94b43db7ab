// Package interop runs other people's programs against a running Tandem: the
// official OpenAI clients for Python, JavaScript and Go. Each client's suite is
// in clients/; the tests here start `tandem up`, install the client through its
// own package manager into a cache, and run the suite.
package interop
