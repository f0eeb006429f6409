package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// TestHelpFits checks that the help texts of all commands fit into 90 columns.
func TestHelpFits(t *testing.T) {
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		var help bytes.Buffer
		cmd.InitDefaultHelpFlag()
		cmd.SetOut(&help)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(help.String()) {
			if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > 90 {
				t.Errorf("%s --help: a line is too long: %s", cmd.CommandPath(), line)
			}
		}
		for _, c := range cmd.Commands() {
			check(c)
		}
	}
	check(newRoot())
}
