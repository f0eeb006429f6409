package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestCompletersHaveTheirPlace: every completer is one of a command, and every flag with one exists.
func TestCompletersHaveTheirPlace(t *testing.T) {
	root := newRoot()
	for path := range argumentCompleters {
		cmd, rest, err := root.Find(strings.Fields(path))
		if err != nil || len(rest) > 0 || cmd.ValidArgsFunction == nil {
			t.Errorf("cage %s completes no arguments: %v", path, err)
		}
	}
	found := map[string]bool{}
	var look func(*cobra.Command)
	look = func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { found[f.Name] = true })
		for _, below := range cmd.Commands() {
			look(below)
		}
	}
	look(root)
	for name := range flagCompleters {
		if !found[name] {
			t.Errorf("no command has --%s", name)
		}
	}
}
