package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// TestHelpFits: the help texts of all commands fit into 90 columns.
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

// Every lack is one line that says how to mend it.
func TestLacks(t *testing.T) {
	if got := lackMessages(false, false); got != nil {
		t.Errorf("a whole executable lacks %q", got)
	}
	list := lackMessages(true, true)
	if len(list) != 2 {
		t.Fatalf("got %q", list)
	}
	for i, want := range []string{"GOEXPERIMENT=simd", "plugins"} {
		if !strings.Contains(list[i], want) || !strings.Contains(list[i], "'make build'") || !strings.Contains(list[i], releases) || strings.Contains(list[i], "\n") {
			t.Errorf("%q does not say how to get %s", list[i], want)
		}
	}
}
