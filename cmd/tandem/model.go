package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tandem-llm/tandem/internal/modelstore"
)

// newModelCmd returns `tandem model`: the models that can be named instead of a path.
func newModelCmd() *cobra.Command {
	var opts modelstore.Options
	cmd := &cobra.Command{
		Use:   "model",
		Short: "List, fetch and remove the models Tandem knows by name",
		Long: `List, fetch and remove the models Tandem knows by name.

Commands that take a model take one of these names or the path of a .gguf file.
Fetching resumes where an earlier attempt stopped, and the file's checksum is
compared before it is used.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&opts.Dir, "model-dir", "", "directory of the model cache (default $"+modelstore.EnvDir+", else the user's cache directory)")
	cmd.AddCommand(newModelLsCmd(&opts), newModelPullCmd(&opts), newModelRmCmd(&opts))
	return cmd
}

// modelRow is one line of `tandem model ls`, and its JSON form.
type modelRow struct {
	Name       string `json:"name"`
	Title      string `json:"title"`
	Quant      string `json:"quant"`
	Bytes      int64  `json:"bytes"`
	Instruct   bool   `json:"instruct"`
	Template   bool   `json:"chat_template"`
	Licence    string `json:"licence"`
	LicenceURL string `json:"licence_url"`
	Source     string `json:"source"`
	SHA256     string `json:"sha256"`
	Cached     bool   `json:"cached"`
	Path       string `json:"path"`
}

func newModelLsCmd(opts *modelstore.Options) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the known models and whether they are cached",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rows := []modelRow{}
			for _, k := range modelstore.Models() {
				path, cached, err := modelstore.Path(k, *opts)
				if err != nil {
					return err
				}
				rows = append(rows, modelRow{
					Name: k.Name, Title: k.Title, Quant: k.Quant, Bytes: k.Size, Instruct: k.Instruct, Template: k.Template,
					Licence: k.Licence, LicenceURL: k.LicenceURL, Source: k.Source(), SHA256: k.SHA256, Cached: cached, Path: path,
				})
			}
			if asJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(rows)
			}
			return printModels(cmd.OutOrStdout(), rows)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, with checksums and licence addresses")
	return cmd
}

func printModels(w io.Writer, rows []modelRow) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tSIZE\tQUANT\tKIND\tCHAT TEMPLATE\tLICENCE\tSOURCE\tCACHED\tPATH")
	for _, r := range rows {
		kind := "base"
		if r.Instruct {
			kind = "instruct"
		}
		fmt.Fprintf(t, "%s\t%d MB\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			r.Name, r.Bytes/1e6, r.Quant, kind, yesNo(r.Template), r.Licence, r.Source, yesNo(r.Cached), r.Path)
	}
	return t.Flush()
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func newModelPullCmd(opts *modelstore.Options) *cobra.Command {
	return &cobra.Command{
		Use:   "pull [NAME]",
		Short: "Fetch a known model into the cache and print its path",
		Long:  "Fetch a known model (default " + modelstore.Default + ") into the cache and print its path. Using a model fetches it too.",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := modelstore.Default
			if len(args) > 0 {
				name = args[0]
			}
			k, err := modelstore.Named(name)
			if err != nil {
				return err
			}
			o := *opts
			o.Progress = cmd.ErrOrStderr()
			path, err := modelstore.Pull(cmd.Context(), k, o)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), path)
			return nil
		},
	}
}

func newModelRmCmd(opts *modelstore.Options) *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME",
		Short: "Remove a known model, and what attempts to fetch it left, from the cache",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := modelstore.Named(args[0])
			if err != nil {
				return err
			}
			freed, err := modelstore.Remove(cmd.Context(), k, *opts)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %d MB freed\n", k.Name, freed/1e6)
			return nil
		},
	}
}
