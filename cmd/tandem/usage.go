package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// exitUsage is the exit status of a command line that cannot be right, whatever
// happens: supervise does not start such a child again.
const exitUsage = 2

// usageError is a mistake in the command line.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func isUsage(err error) bool {
	var u usageError
	return errors.As(err, &u)
}

// judgeUsage makes every mistake in flags and arguments, of root and of all commands
// under it, a usageError that names what was probably meant and where help is.
func judgeUsage(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usagef("%w%s See: %s --help", err, meant(c, err), c.CommandPath())
	})
	if check := cmd.Args; check != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			if err == nil {
				return nil
			}
			guess := "."
			if len(args) > 0 && c.HasSubCommands() {
				if near := c.SuggestionsFor(args[0]); len(near) > 0 {
					guess = "; did you mean " + strings.Join(near, " or ") + "?"
				}
			}
			return usagef("%w%s See: %s --help", err, guess, c.CommandPath())
		}
	}
	for _, sub := range cmd.Commands() {
		judgeUsage(sub)
	}
}

// meant guesses which flag an unknown one was to be.
func meant(c *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return "."
	}
	got, best, least := unknown.GetSpecifiedName(), "", 3 // further off is no likeness
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if d := distance(got, f.Name); d < least || best == "" && len(got) > 2 && strings.HasPrefix(f.Name, got) {
			best, least = f.Name, min(d, least)
		}
	})
	if best == "" {
		return "."
	}
	return "; did you mean --" + best + "?"
}

// distance is how many letters must be changed, added or taken away to make a of b;
// two that changed places count once.
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			row[j+1] = min(last[j+1]+1, row[j]+1)
			if a[i] == b[j] {
				row[j+1] = min(row[j+1], last[j])
			} else {
				row[j+1] = min(row[j+1], last[j]+1)
			}
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
