package room

// survivors are the mutants that no test can tell from the original, and why.
var survivors = map[string]string{}
