package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/cage-qat/cage/internal/vfs"
)

func newMan() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "man DIR",
		Short: "Write manual pages for man(1)",
		Long: `Write a manual page for each command into DIR, for man(1). Where DIR is man1 in a
directory that MANPATH names, or ~/.local/share/man/man1, 'man cage' and 'man
cage-train' show them. They say what --help says.`,
		Args: exactly(1, "one directory"),
	}
	return answering(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		if err := vfs.At(args[0]).MkdirAll(); err != nil {
			return nil, err
		}
		root := cmd.Root()
		root.DisableAutoGenTag = true // a line with the date
		indent(root)
		header := &doc.GenManHeader{Section: "1", Source: "cage " + buildVersion(), Manual: "cage"}
		if err := doc.GenManTree(root, header, args[0]); err != nil {
			return nil, err
		}
		return inWords(map[string]string{"dir": args[0]}, "%s\n", args[0]), nil
	})
}

// indent makes the examples in texts of commands what Markdown takes for code, from which
// manual pages are made.
func indent(cmd *cobra.Command) {
	cmd.Long = strings.ReplaceAll(cmd.Long, "\n  ", "\n    ")
	for _, c := range cmd.Commands() {
		indent(c)
	}
}
