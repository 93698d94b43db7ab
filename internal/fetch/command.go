package fetch

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

const (
	killDelay  = 5 * time.Second // between the interrupt of a client and our giving up on its output
	tailLength = 600             // bytes of a client's output that an error quotes
)

// Command runs a program in dir, without a shell, with this process's environment
// and no input. The error quotes the end of its output. A program that is not
// installed gives an error that wraps exec.ErrNotFound.
func Command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.WaitDelay = killDelay
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	tail := strings.TrimSpace(out.String())
	if len(tail) > tailLength {
		tail = "…" + strings.ToValidUTF8(tail[len(tail)-tailLength:], "")
	}
	if tail == "" {
		return fmt.Errorf("%s: %w", name, err)
	}
	return fmt.Errorf("%s: %w:\n    %s", name, err, strings.ReplaceAll(tail, "\n", "\n    "))
}
