package study_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// cage builds the command, once for all tests, and returns its path.
var cage = sync.OnceValues(func() (string, error) {
	return testrun.CageIn(scratch)
})

var scratch string // shared by all tests

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "study"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(scratch)
		os.Exit(code)
	}))
}

// command returns the path of the command and lets it find the plugins.
func command(t *testing.T) string {
	t.Helper()
	testlevel.Long(t, "starts and kills processes")
	path, err := cage()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("CAGE_PLUGIN_PATH", testrun.Finder(t).Dirs[0])
	return path
}

const axes = `
base = "base.toml"
[study]
parallel = 2
[[study.axes]]
name = "method"
values = [{label = "STE", set = {method.form = "off"}}, {label = "CAGE"}]
[[study.axes]]
name = "seed"
key = ["seed", "data.seed"]
values = [0, 1]
`

// tiny writes a study of four small language models to a new directory, and changes to it.
func tiny(t *testing.T, more string, settings ...string) *study.Study {
	t.Helper()
	trainFile, validation := testrun.Dataset(t)
	cfg := testrun.Parse(t, testrun.ConfigText(trainFile, validation, "unused"), settings...)
	t.Chdir(t.TempDir())
	write(t, "base.toml", string(cfg.Encode()))
	write(t, "tiny.toml", axes+more)
	return load(t, "tiny.toml")
}

func load(t *testing.T, path string) *study.Study {
	t.Helper()
	s, err := study.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func results(t *testing.T, s *study.Study) []study.Result {
	t.Helper()
	list, err := s.Results()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func states(t *testing.T, s *study.Study) map[string]study.State {
	t.Helper()
	out := map[string]study.State{}
	for _, r := range results(t, s) {
		out[s.Label(r.Cell)] = r.State
	}
	return out
}

// run runs a study in this process.
func run(t *testing.T, s *study.Study, o study.RunOptions) (study.Outcome, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	return study.Run(ctx, s, o)
}
