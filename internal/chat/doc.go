// Package chat turns messages into the text a model was trained on, and the
// model's bytes back into text. A Renderer holds one model's template; a
// Detokenizer holds the bytes of an unfinished character of one answer.
//
// It keeps no clock: the template's date is the router's request time, so that
// both legs of a pair render the same text.
package chat
