// Package grammar writes and checks grammars in GBNF, llama.cpp's notation, that
// hold a model's answer to a form: any JSON object, one JSON schema,
// or calls of functions.
//
// A schema comes from a client. What of it cannot be honoured is an error that
// names the place; nothing in it makes the package, or the library that
// compiles its grammars, take more than bounded memory and stack.
package grammar
