package main

import (
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/plugin/scaffold"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
)

//go:generate go test -run TestGeneratedDocs -update .

// TestGeneratedDocs checks that the generated references are up to date.
func TestGeneratedDocs(t *testing.T) {
	checkGenerated(t, "docs/reference/configuration.md", "the tables of host/train/config",
		config.Reference())
	checkGenerated(t, "docs/reference/records.md", "the types of host/train/metrics",
		numbersReference())
	checkGenerated(t, "docs/reference/command-line.md", "the commands of cmd/cage",
		commandsReference())
}

// commandsReference returns the page of all commands with their flags.
func commandsReference() string {
	var b strings.Builder
	b.WriteString("# Command line\n\n" +
		"`cage help COMMAND` describes a command with examples. Flags may stand before or after " +
		"arguments.\n" +
		"Every command takes `--log-level` (trace, debug, info, warn, error or off; default info), and " +
		"all that print\n" +
		"results take `--json`.\n" +
		"Exit codes: 0 done, 1 failed, 2 wrong command line, 130 interrupted.\n")
	root := newRoot()
	root.InitDefaultCompletionCmd()
	describeCommands(&b, root)
	return b.String()
}

func describeCommands(b *strings.Builder, parent *cobra.Command) {
	for _, c := range parent.Commands() {
		if !c.IsAvailableCommand() || c.Name() == "completion" {
			continue
		}
		if c.HasAvailableSubCommands() && c.Use == c.Name() { // it has subcommands only
			describeCommands(b, c)
			continue
		}
		fmt.Fprintf(b, "\n## %s\n\n%s.\n\n    %s\n", c.CommandPath(), c.Short, c.UseLine())
		var rows []string
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Name == "help" || f.Name == "json" {
				return
			}
			value, usage := pflag.UnquoteUsage(f)
			name := "--" + f.Name
			if f.Shorthand != "" {
				name = "-" + f.Shorthand + ", " + name
			}
			if value != "" {
				name += " " + value
			}
			if d := f.DefValue; d != "" && d != "false" && d != "0" && d != "[]" {
				usage += " (default " + d + ")"
			}
			rows = append(rows, fmt.Sprintf("| `%s` | %s |\n", name, strings.ReplaceAll(usage, "|", "\\|")))
		})
		if rows != nil {
			b.WriteString("\n| flag | meaning |\n|---|---|\n" + strings.Join(rows, ""))
		}
		describeCommands(b, c)
	}
}

// checkGenerated compares a document with its generated content, or writes it with -update.
func checkGenerated(t *testing.T, name, source, content string) {
	t.Helper()
	path := filepath.Join("../..", name)
	want := "<!-- Written by `go generate ./cmd/cage` from " + source + ". Do not edit. -->\n\n" +
		content
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

// TestExamplesAreRead checks that the configurations in examples and in the README can be read. A
// small model replaces the one from which some of them start.
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
	const model = "../../host/model/huggingface/testdata/llama32"
	fromModel := []string{`model.init="` + model + `"`, "model.context=64"}
	for path, overrides := range map[string][]string{
		"recipes/tulu3.toml": fromModel, "recipes/paper.toml": fromModel,
		"recipes/fp_quant.toml": fromModel, "recipes/qad.toml": fromModel,
		"life/finetune.toml": fromModel, "life/pretrain.toml": nil,
	} {
		if _, err := config.Load("../../examples/"+path, overrides); err != nil {
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

// TestExamplesDiffer checks that the compared runs differ only in what is compared.
func TestExamplesDiffer(t *testing.T) {
	load := func(name string) *config.Config {
		cfg, err := config.Load("../../examples/"+name, nil)
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	wants := map[string][]string{
		"demo-quest.toml": {"train.out", "method.form", "method.silence", "method.strength",
			"method.lambda"},
		"demo-fp.toml": {
			"train.out", "method.form", "method.silence", "method.strength",
			"quantizer.weights.plugin", "quantizer.weights.sha256", "quantizer.weights.bits",
			"quantizer.activations.plugin", "quantizer.activations.sha256", "quantizer.activations.bits",
			"method.lambda",
		},
	}
	for name, want := range wants {
		var keys []string
		for _, d := range config.Diff(load("demo.toml"), load(name)) {
			keys = append(keys, d.Key)
		}
		if diff := cmp.Diff(want, keys); diff != "" {
			t.Errorf("demo.toml and %s differ in other keys (-want +got):\n%s", name, diff)
		}
	}
}

// The pages for authors of plugins.
const (
	writing       = "../../docs/guide/plugin.md"
	sdkReference  = "../../docs/reference/sdk.md"
	pythonPackage = "../../sdk/python/README.md"
)

// blocks returns the fenced blocks of a language on a page.
func blocks(t *testing.T, page, language string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").
		FindAllStringSubmatch(string(text), -1) {
		list = append(list, m[1])
	}
	return list
}

// clause matches the package clause of a program. Blocks without one continue a program.
var clause = regexp.MustCompile(`(?m)^package main$`)

// chapters returns the programs of the page by kind, each followed by the blocks that continue it.
func chapters(t *testing.T) (programs map[string][]string) {
	t.Helper()
	programs = map[string][]string{}
	var kind string
	var loose []string
	for _, block := range blocks(t, writing, "go") {
		switch {
		case !clause.MatchString(block):
			loose = append(loose, block)
			continue
		case strings.Contains(block, "sdk.ServeQuantizer"):
			kind = "quantizer"
		default:
			kind = "optimizer"
		}
		programs[kind] = append(programs[kind], block)
	}
	for _, block := range loose { // it extends the type that it embeds
		kind := "quantizer"
		if strings.Contains(block, "struct{ optimizer }") {
			kind = "optimizer"
		}
		programs[kind] = append(programs[kind], block)
	}
	if len(programs["quantizer"]) < 3 || len(programs["optimizer"]) < 2 {
		t.Fatalf("%s shows %d blocks of quantizers and %d of optimizers", writing,
			len(programs["quantizer"]), len(programs["optimizer"]))
	}
	return programs
}

// TestWritingShowsTheTemplates checks that the page shows what `cage plugins new` writes.
func TestWritingShowsTheTemplates(t *testing.T) {
	programs := chapters(t)
	for kind, name := range map[string]string{"quantizer": "rounder", "optimizer": "running-mean"} {
		dir := t.TempDir()
		if err := (scaffold.Plugin{Kind: kind, Name: name}).Render(dir); err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(dir, "main.go"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), programs[kind][0]); diff != "" {
			t.Errorf("%s shows another %s than plugins new writes (-plugins new +page):\n%s", writing, kind,
				diff)
		}
	}
}

// TestWritingShowsPython checks the same for Python and JAX.
func TestWritingShowsPython(t *testing.T) {
	shown := slices.Concat(blocks(t, writing, "python"), blocks(t, pythonPackage, "python"))
	for _, p := range []scaffold.Plugin{{Kind: "quantizer", Name: "striped", Language: "python"},
		{Kind: "optimizer", Name: "mean", Language: "jax"}} {
		dir := t.TempDir()
		if err := p.Render(dir); err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(dir, "plugin.py"))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(shown, string(want)) {
			t.Errorf("%s and %s do not show what plugins new writes for %+v:\n%s", writing, pythonPackage, p,
				want)
		}
	}
}

const (
	continued = `package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

var _, _, _ = math.Pi, sdk.RoleWeight, program.Float

`
	conformance = `package main

import (
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/sdktest"
)

var _ = sdk.RoleWeight
`
)

var declared = regexp.MustCompile(`(?m)^type (\w+) struct`)

// TestWritingConforms checks that all Go on the page compiles and passes the conformance kit, and
// the golden file of the reference. Other tests run the kit on the page's rounder with its default
// settings only.
func TestWritingConforms(t *testing.T) {
	testlevel.Long(t, "go test builds the programs of the page")
	for kind, sources := range chapters(t) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir, tests := t.TempDir(), conformance
			golden := filepath.Join(dir, "golden.json")
			create(t, golden, blocks(t, sdkReference, "json")[0])
			for i, source := range sources {
				for _, m := range declared.FindAllStringSubmatch(source, -1) {
					options := ""
					if m[1] == "quantizer" {
						options = fmt.Sprintf(", sdktest.GoldenFile(t, %q)", golden)
					}
					tests += fmt.Sprintf("\nfunc Test_%s(t *testing.T) { sdktest.%s(t, %[1]s{}%[3]s) }\n", m[1],
						strings.ToUpper(kind[:1])+kind[1:], options)
				}
				if formatted, err := format.Source([]byte(source)); err != nil || string(formatted) != source {
					t.Errorf("not as gofmt writes it (%v):\n%s", err, source)
				}
				if i > 0 {
					source = continued + source
				}
				create(t, filepath.Join(dir, fmt.Sprintf("page%d.go", i)), source)
			}
			create(t, filepath.Join(dir, "page_test.go"), tests)
			files, err := filepath.Glob(filepath.Join(dir, "*.go"))
			if err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("go", append([]string{"test", "-vet=off"}, files...)...).
				CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func create(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestWritingConfiguration checks that the configurations on the page can be read.
func TestWritingConfiguration(t *testing.T) {
	list := blocks(t, writing, "toml")
	if len(list) == 0 {
		t.Fatal("no TOML file is shown")
	}
	for _, text := range list {
		if _, err := config.Parse(writing, []byte(text), nil); err != nil {
			t.Error(err)
		}
	}
}

// TestClaims checks that every claim has a row in the reference of the SDK.
func TestClaims(t *testing.T) {
	page, err := os.ReadFile(sdkReference)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		for _, claim := range sdk.ClaimNames(kind) {
			if !regexp.MustCompile("(?m)^\\| .*`" + string(claim) + "`.* \\|").Match(page) {
				t.Errorf("the table of claims in %s lacks %s", sdkReference, claim)
			}
		}
	}
}

// numbersReference documents the numbers of records and summaries in Markdown.
func numbersReference() string {
	var b strings.Builder
	b.WriteString("# Numbers of a run\n\n" +
		"A run directory has `metrics.jsonl`, with a record every `train.log_every` steps and at each " +
		"evaluation, and `summary.json`, what the run\n" +
		"ended with. A number that was not measured is left out; one that is not finite is the text " +
		"`\"NaN\"`, `\"Inf\"` or `\"-Inf\"`. Tables and\n" +
		"figures of [studies](../guide/studies.md) call numbers by these names, and so do `cage runs " +
		"list` and the filter of [`cage serve`](../guide/live-pages.md).\n" +
		"Losses are in nats per token. [Evaluations](../guide/evaluation.md) add numbers of their own, " +
		"such as `hellaswag.acc_norm`.\n\n" +
		"| name | what it is | `metrics.jsonl` | of single tensors | `summary.json` " +
		"|\n|---|---|---|---|---|\n")
	places := []reflect.Type{reflect.TypeFor[metrics.Record](),
		reflect.TypeFor[metrics.WeightMeasures](), reflect.TypeFor[metrics.Summary]()}
	in := map[string][]bool{}
	var names []string
	for i, place := range places {
		for _, name := range metrics.NumberNames(place) {
			if place == reflect.TypeFor[metrics.Summary]() && metrics.Configured(name) {
				continue
			}
			if in[name] == nil {
				names = append(names, name)
				in[name] = make([]bool, len(places))
			}
			in[name][i] = true
		}
	}
	for _, name := range names {
		fmt.Fprintf(&b, "| `%s` | %s |", name, metrics.Label(name))
		for _, there := range in[name] {
			b.WriteString(map[bool]string{true: " × |", false: " |"}[there])
		}
		b.WriteString("\n")
	}
	b.WriteString("\nNumbers of single tensors stand in the table `weights` of a record, below the " +
		"name of the tensor: [diagnostics](configuration.md#diagnostics)\n" +
		"say when. What a method has counted so far stands in the table `counts` of records and\n" +
		"of the summary: for OsciReset `weights_set_back`.\n")
	return b.String()
}
