package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/deploy/posttrain"
	"github.com/cage-qat/cage/host/deploy/ruler"
	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/internal/schema"
)

// TestArguments checks that settings survive a round trip through arguments, as studies pass them.
func TestArguments(t *testing.T) {
	for name, c := range map[string]struct {
		from, to interface{ Keys() []schema.Key }
	}{
		"eval": {&tasks.Settings{Names: []string{"piqa", `a,"b".toml`},
			Source: tasks.Source{Data: "--rows", Shots: 0, Limit: 3}, Batch: 8, Chat: true, OneTurn: true},
			&tasks.Settings{}},
		"ruler": {&ruler.Settings{Lengths: []int{4096, 8192}, Samples: 3,
			Files: ruler.Files{Essay: "an essay.txt"}, Template: "own"}, &ruler.Settings{}},
		"quantize": {&posttrain.Quantization{Settings: posttrain.Settings{Method: posttrain.RTN,
			Damping: 1e-9, Scales: posttrain.AutoScales, OnePass: true}, Windows: 0, Seed: 1 << 31},
			&posttrain.Quantization{}},
	} {
		cmd := &cobra.Command{Run: func(*cobra.Command, []string) {}}
		addKeys(cmd, c.to.Keys())
		cmd.SetArgs(schema.Arguments(c.from.Keys()))
		if err := cmd.Execute(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := checkKeys(cmd, c.to.Keys()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for i, k := range c.from.Keys() {
			if diff := cmp.Diff(k.Value(), c.to.Keys()[i].Value()); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", name, k.Name, diff)
			}
		}
	}
}
