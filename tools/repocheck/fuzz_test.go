package repocheck

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// parsers lists everything that reads bytes that somebody else may have written, or that a crash
// may have damaged, with its fuzz targets.
var parsers = []struct{ what, pkg, targets string }{
	{"configuration: TOML and --set", "host/train/config", "FuzzParse"},
	{"study files, and what a study keeps of its cells", "host/study", "FuzzParse FuzzRead FuzzState"},
	{"records, trajectories, samples and summaries of runs", "host/train/metrics",
		"FuzzParse FuzzResume FuzzSample FuzzSummary FuzzTrajectory"},
	{"run directories, conditions of runs list --where", "host/train/rundir",
		"FuzzCondition FuzzOpen"},
	{"provenance.json", "host/train/provenance", "FuzzProvenance"},
	{"recorded programs in provenance.json", "host/train/build", "FuzzRecorded"},
	{"kept results of studies", "host/study/snapshot", "FuzzRead"},
	{"comments in documents about kept results", "tools/docsnapshots", "FuzzMarks"},
	{"curves and provenance in a study's report", "host/study/report", "FuzzCurve FuzzProvenance"},
	{"checkpoints and their metadata", "host/train/checkpoint", "FuzzLoad FuzzMetadata"},
	{"safetensors files, and the index of several", "host/model/safetensors", "FuzzIndex FuzzReader"},
	{"adapters in the files of PEFT", "host/model/lora", "FuzzLoad"},
	{"tokenizer files, packed codes and scales, directories of exports, models in GGUF files",
		"host/deploy/export", "FuzzBlocks FuzzDirectory FuzzGGUF FuzzTokenizer FuzzWords"},
	{"GGUF files", "host/model/gguf", "FuzzReader"},
	{"config.json of a Hugging Face checkpoint", "host/model/huggingface", "FuzzConfig"},
	{"text and the patterns of data prepare", "host/data", "FuzzInclude FuzzScan"},
	{"token files, dataset.json, chat.json", "host/data/dataset",
		"FuzzFile FuzzManifest FuzzParseHeader"},
	{"conversations, the templates and special tokens of tokenizer_config.json", "host/data/chat",
		"FuzzConfig FuzzRow"},
	{"chat templates, and JSON as their values", "host/data/chat/jinja", "FuzzTemplate"},
	{"JSONL and compressed files", "host/data/source", "FuzzDecompress FuzzJSONL"},
	{"tokenizer.json, tokenizer_config.json", "host/data/tokenizer",
		"FuzzBytes FuzzConfig FuzzDefinition FuzzPattern FuzzWords"},
	{"tables of losses as CSV, runs as points", "host/study/scaling", "FuzzParseCSV FuzzReadRuns"},
	{"descriptions of evaluation tasks, their rows, answers and samples", "host/deploy/tasks",
		"FuzzAnswers FuzzParse"},
	{"inputs of RULER", "host/deploy/ruler", "FuzzDocuments FuzzWords"},
	{"what a plugin logs", "host/train/plugin", "FuzzParseLog"},
	{"messages between host and plugin", "sdk",
		"FuzzDescribeAnswer FuzzOptimizerAnswer FuzzQuantizeRequest FuzzQuantizerAnswer"},
	{"programs on the wire", "sdk/internal/wire", "FuzzProgram"},
	{"programs", "sdk/program", "FuzzValidate"},
	{"programs, run by the reference implementation", "sdk/program/reference", "FuzzRun"},
	{"products of matrices, on every tier", "host/compute/matmul", "FuzzProduct"},
	{"programs, run by rows", "host/compute/cpu", "FuzzPrograms"},
	{"programs, run by every executor", "host/testing/executortest", "FuzzExecutors"},
	{"values of other implementations, put to plugins", "sdk/sdktest", "FuzzGoldenFile"},
	{"lines of JSON of files that grow", "internal/jsonlines", "FuzzRead"},
	{"foreign text on a terminal, labels as names of files", "internal/safetext",
		"FuzzASCII FuzzText"},
	{"mistakes in JSON, in plain words", "internal/plainjson", "FuzzExplain"},
	{"TOML, and mistakes in it in plain words", "internal/plaintoml", "FuzzParse"},
	{"settings of plugins test, provenance in runs show", "cmd/cage", "FuzzMadeWith FuzzSet"},
	{"sequences to score", "host/deploy/trained", "FuzzSequences"},
}

// unfuzzed lists packages that decode something but need no target, with the reasons.
var unfuzzed = map[string]string{
	"host/train/plugin/scaffold": "what the go command says of a module that it has fetched",
	"internal/testing/golden":    "for tests only",
	"internal/testing/testfile":  "for tests only",
	"tools/crashtest":            "reads what its own processes have just written",
	"tools/protogen":             "a generator of this repository",
}

// TestParsersHaveTargets checks that every package that decodes bytes has a fuzz target, and that
// parsers lists exactly the targets that exist.
func TestParsersHaveTargets(t *testing.T) {
	decoding, targets := decoders(t)
	listed := map[string]bool{}
	for _, p := range parsers {
		listed[p.pkg] = true
		want := strings.Fields(p.targets)
		if got := targets[p.pkg]; !slices.Equal(got, want) {
			t.Errorf("%s has the targets %q; the table says %q (%s)", p.pkg, got, want, p.what)
		}
	}
	for pkg, calls := range decoding {
		if _, ok := unfuzzed[pkg]; !ok && !listed[pkg] {
			t.Errorf("%s decodes (%s): write a fuzz target, and list it here", pkg,
				strings.Join(calls, ", "))
		}
	}
	for pkg, names := range targets {
		if !listed[pkg] {
			t.Errorf("%s has the targets %q, which are not listed", pkg, names)
		}
	}
	for pkg, reason := range unfuzzed {
		if decoding[pkg] == nil {
			t.Errorf("the exception %s (%s) is not needed any more", pkg, reason)
		}
	}
}

// TestFuzzScriptFindsTargets checks that `make fuzz` runs all targets.
func TestFuzzScriptFindsTargets(t *testing.T) {
	out, err := exec.Command("bash", "../../scripts/fuzz.sh", "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	_, targets := decoders(t)
	var want []string
	for pkg, names := range targets {
		for _, name := range names {
			want = append(want, "./"+pkg+" "+name)
		}
	}
	slices.Sort(want)
	got := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the script finds\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// decode lists the functions that decode bytes from elsewhere.
var decode = []string{"json.Unmarshal", "json.NewDecoder", "toml.Decode", "toml.Unmarshal",
	"toml.NewDecoder", "plaintoml.Parse", "proto.Unmarshal",
	"csv.NewReader", "binary.Read", "binary.Decode", "xml.Unmarshal", "gob.NewDecoder",
	"yaml.Unmarshal"}

// notWalked lists directories without packages and documents of the product; those with a slash are
// in the root.
var notWalked = []string{"testdata", "templates", "testrun", "/bin", "/data", "/dist", "/runs",
	"/studies"}

// walk returns the files of the repository with an extension, relative to its root.
func walk(t *testing.T, extension string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(repository, func(name string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(repository, name)
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && below != "." ||
			slices.Contains(notWalked, d.Name()) || slices.Contains(notWalked, "/"+below)) {
			return filepath.SkipDir
		}
		if filepath.Ext(name) == extension {
			files = append(files, filepath.ToSlash(below))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// decoders returns, by package, the uses of decode outside of tests, and the sorted fuzz targets.
func decoders(t *testing.T) (decoding, targets map[string][]string) {
	decoding, targets = map[string][]string{}, map[string][]string{}
	for _, name := range walk(t, ".go") {
		if strings.HasSuffix(name, ".pb.go") {
			continue
		}
		pkg := path.Dir(name)
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(repository, name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "_test.go") {
			targets[pkg] = slices.Sorted(slices.Values(append(targets[pkg], fuzzed(file)...)))
		} else if calls := decoded(file); calls != nil {
			decoding[pkg] = append(decoding[pkg], calls...)
		}
	}
	for pkg, names := range targets {
		if len(names) == 0 {
			delete(targets, pkg)
		}
	}
	return decoding, targets
}

func fuzzed(file *ast.File) (names []string) {
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Fuzz") {
			names = append(names, f.Name.Name)
		}
	}
	return names
}

func decoded(file *ast.File) (calls []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && slices.Contains(decode, x.Name+"."+s.Sel.Name) {
				calls = append(calls, x.Name+"."+s.Sel.Name)
			}
		}
		return true
	})
	return calls
}
