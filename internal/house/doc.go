// Package house holds the rules of this repository that a reviewer should not have
// to remember, as a test. Each finding names a file, a line and the rule; rules.go is
// the list of them.
//
// An exception goes into allow.go, with its reason. An exception that is no longer
// needed is a finding too.
//
// It reads the files that git does not ignore and parses them. It needs no types, so
// a rule is about what the source says, not about all it could mean.
package house
