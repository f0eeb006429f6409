package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
)

//go:generate go test -run TestGeneratedDocs -update .

// TestGeneratedDocs: the lists of keys and of numbers are those of the program.
func TestGeneratedDocs(t *testing.T) {
	checkGenerated(t, "docs/configuration.md", "the tables of host/train/config", config.Reference())
	checkGenerated(t, "docs/records.md", "the types of host/train/metrics", metrics.Reference())
}

// checkGenerated compares a document with what is made from a source, or writes it with -update.
func checkGenerated(t *testing.T, name, source, content string) {
	t.Helper()
	path := filepath.Join("../..", name)
	want := "<!-- Written by `go generate ./cmd/cage` from " + source + ". Do not edit. -->\n\n" + content
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is out of date, run `go generate ./cmd/cage` (-want +got):\n%s", name, diff)
	}
}

// The runs in examples and the one in the README can be read.
func TestExamplesAreRead(t *testing.T) {
	examples, err := filepath.Glob("../../examples/*.toml")
	if err != nil || len(examples) < 3 {
		t.Fatalf("found %v: %v", examples, err)
	}
	for _, path := range examples {
		if _, err := config.Load(path, nil); err != nil {
			t.Error(err)
		}
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```toml\n")
	text, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("README.md shows no TOML file")
	}
	if _, err := config.Parse("README.md", []byte(text), nil); err != nil {
		t.Error(err)
	}
}

// The runs that start from a model can be read where there is one; here a small one stands
// for it.
func TestFineTuningExamplesAreRead(t *testing.T) {
	for path, init := range map[string]string{
		"../../examples/recipes/tulu3.toml": "../../host/model/huggingface/testdata/llama32", "../../examples/recipes/paper.toml": "../../host/model/huggingface/testdata/llama32",
		"../../examples/recipes/fp_quant.toml": "../../host/model/huggingface/testdata/llama32",
		"../../examples/life/finetune.toml":    "../../host/model/huggingface/testdata/llama32", "../../examples/life/pretrain.toml": "",
	} {
		var overrides []string
		if init != "" {
			overrides = []string{`model.init="` + init + `"`, "model.context=64"}
		}
		if _, err := config.Load(path, overrides); err != nil {
			t.Error(err)
		}
	}
}

// The three runs that are compared differ in nothing but what is compared.
func TestExamplesDiffer(t *testing.T) {
	load := func(name string) *config.Config {
		cfg, err := config.Load("../../examples/"+name, nil)
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	wants := map[string][]string{
		"demo-quest.toml": {"train.out", "method.form", "method.lambda", "method.silence"},
		"demo-fp.toml": {
			"train.out", "method.form", "method.lambda", "method.silence",
			"quantizer.weights.plugin", "quantizer.weights.sha256", "quantizer.weights.bits",
			"quantizer.activations.plugin", "quantizer.activations.sha256", "quantizer.activations.bits",
		},
	}
	for name, want := range wants {
		diffs, err := config.Diff(load("demo.toml"), load(name))
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, d := range diffs {
			keys = append(keys, d.Key)
		}
		if diff := cmp.Diff(want, keys); diff != "" {
			t.Errorf("demo.toml and %s differ in other keys (-want +got):\n%s", name, diff)
		}
	}
}
