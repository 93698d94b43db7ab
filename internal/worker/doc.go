// Package worker is one worker process: it loads an engine, puts a prefill or a
// decode worker (or one that serves alone) around it, and gives it its HTTP
// face: the OpenAI and SGLang routes, aborts, health, metrics and debug pages.
//
// Handlers hold no rules: they read a body to its end, tokenize, wait for the
// worker's answer or tokens, and turn a client that left into an abort.
package worker
