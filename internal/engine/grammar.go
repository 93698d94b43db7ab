package engine

import "errors"

// Grammars is what a Backend is, besides, that can hold a text to a grammar.
// Like Compute it is used on the loop's goroutine only.
type Grammars interface {
	// NewGrammar compiles a grammar in GBNF whose first rule is root. No text
	// makes it crash; the caller owes what it returns one Close.
	NewGrammar(gbnf string) (Grammar, error)
}

// Grammar is one sequence's place in a grammar.
type Grammar interface {
	// Allows says whether t may come next. The end of generation may, where the
	// text is complete.
	Allows(t Token) bool

	// Mask makes the logits of tokens that may not come next −Inf.
	Mask(logits []float32)

	// Accept moves on by a token that Allows.
	Accept(t Token)

	Close()
}

// ErrNoGrammar is the answer to a grammar on a backend without Grammars.
var ErrNoGrammar = errors.New("this engine cannot hold an answer to a grammar (response_format, json_schema, tool_choice)")

// GrammarError says that a request's grammar is none.
type GrammarError struct{ Err error }

// Error names what is wrong.
func (e *GrammarError) Error() string { return "the grammar is refused: " + e.Err.Error() }

// Unwrap returns the backend's words.
func (e *GrammarError) Unwrap() error { return e.Err }
