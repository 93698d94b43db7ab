package grammar

const (
	// MaxSchema bounds a JSON schema's text, MaxText a grammar's: the library
	// compiles it between two steps of the engine.
	MaxSchema = 64 << 10
	MaxText   = 256 << 10
	// MaxDepth bounds nesting, because the library's parser recurses.
	MaxDepth = 64
	// MaxRules bounds chains of rules, which the library follows recursively.
	MaxRules = 2000
	// MaxRepeat bounds all the bounded repetitions of a grammar together: the
	// library writes each of them out.
	MaxRepeat = 10000
	// maxCopied bounds bytes that repetitions may write out.
	maxCopied = 4 << 20
)
