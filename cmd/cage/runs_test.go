package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestWatchGoesOn: an error at the first look ends the command; a later one is shown until it has passed.
func TestWatchGoesOn(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	var out bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	cmd.SetOut(&out)
	looks := 0
	err := watchTable(cmd, func() ([][]string, error) {
		if looks++; looks == 2 {
			stop()
			return nil, errors.New("the directory is away")
		}
		return [][]string{{"run"}, {"runs/a"}}, nil
	})
	if err != nil || !strings.HasPrefix(out.String(), "run") || !strings.HasSuffix(out.String(), "the directory is away\n") {
		t.Errorf("%v, shown was\n%s", err, out.String())
	}
	lost := errors.New("there is no directory")
	if err := watchTable(cmd, func() ([][]string, error) { return nil, lost }); !errors.Is(err, lost) {
		t.Errorf("at the first look: %v", err)
	}
}

// FuzzMadeWith: the account of a run is shown, or refused by the name of its file.
func FuzzMadeWith(f *testing.F) {
	f.Add([]byte(`{"build":{"go":"go1.27","simd":true},"plugins":[{"table":"optimizer","name":"adamw","version":"1","sha256":"ff"}]}`))
	f.Add([]byte(`{"plugins":[null]}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		rows, err := provenanceRows(text)
		if err != nil {
			if !strings.Contains(err.Error(), "provenance.json") {
				t.Fatalf("no file in %v", err)
			}
			return
		}
		for _, r := range rows {
			if len(r) != 2 {
				t.Fatalf("a row of %d columns: %q", len(r), r)
			}
		}
	})
}
