package build_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// TestSurvey checks that all problems of many configurations are found with one process per plugin,
// and that the configurations stay unchanged.
func TestSurvey(t *testing.T) {
	testlevel.Long(t, "asks the plugins of many configurations")
	good := testrun.Config(t)
	cases := []struct {
		overrides, keys []string
	}{
		{nil, nil},
		{[]string{"seed=1", "method.lambda=3.0"}, nil},
		{[]string{"quantizer.bit=3", "optimizer.beta1=2.0"},
			[]string{"quantizer.bit", "optimizer.beta1"}},
		{[]string{"quantizer.bits=1"}, []string{"quantizer.plugin"}}, // the plugin refuses the sites
		{[]string{"quantizer.bits=3"}, nil},
		{[]string{`quantizer.plugin="qest"`, "optimizer.beta3=0.9"},
			[]string{"quantizer.plugin", "optimizer.beta3"}},
		{[]string{"model.vocab=2"}, []string{"model.vocab"}},
		{[]string{`optimizer.groups=[{match="haed", rate=0.5}]`}, []string{"optimizer.groups[0]"}},
		{[]string{`optimizer.rest={plugin="amadw", sha256="` + strings.Repeat("0", 64) + `"}`},
			[]string{"optimizer.rest.plugin"}},
		{[]string{`optimizer.rest={plugin="adamw", betta=0.5}`}, []string{"optimizer.rest.betta"}},
		{[]string{`quantizer={plugin="quest", bitz=4, weights={plugin="quest"}, activations={plugin="none"}}`}, []string{"quantizer.bitz"}},
		{[]string{`quantizer.overrides=[{match="layers.0.*", bits=3, plugin="quest"}, {match="*", plugin="quest"}]`}, []string{"quantizer.overrides[0]"}},
		{[]string{`optimizer.groups=[{match="*", rate=0.5}, {match="head", rate=0.25}]`},
			[]string{"optimizer.groups[1]"}},
		{[]string{`quantizer.plugin="lsq"`, `method.gradient="full"`}, []string{"method.gradient"}},
		// the same problem again, in another configuration
		{[]string{"quantizer.bit=3", "seed=2"}, []string{"quantizer.bit"}},
	}
	var list []*config.Config
	var before []string
	for _, c := range cases {
		cfg := testrun.Elsewhere(t, good, c.overrides...)
		list, before = append(list, cfg), append(before, string(cfg.Encode()))
	}
	recorder := testrun.NewRecorder(t)
	findings := build.Survey(t.Context(), list, recorder.Finder, plugin.Options{})
	for i, c := range cases {
		var keys []string
		for _, e := range problemsIn(findings[i].Err) {
			keys = append(keys, e.Key)
		}
		if got, want := strings.Join(keys, " "), strings.Join(c.keys, " "); got != want {
			t.Errorf("%q: problems of %q, want %q: %v", c.overrides, got, want, findings[i].Err)
		}
		if text := string(list[i].Encode()); text != before[i] {
			t.Errorf("%q: the configuration has become\n%s", c.overrides, text)
		}
	}
	started := recorder.Processes(t)
	// The two plugins that do not exist start no process.
	if left := testrun.Alive(started); len(started) != 3 || len(left) > 0 {
		t.Errorf("%d processes started, want one each of quest, lsq and adamw; %d still run",
			len(started), len(left))
	}
}

func problemsIn(err error) plaintoml.Errors {
	var all plaintoml.Errors
	var one *plaintoml.Error
	switch {
	case errors.As(err, &all):
		return all
	case errors.As(err, &one):
		return plaintoml.Errors{one}
	}
	return nil
}

// conversations returns a training without train.steps on this many documents, one per row.
func conversations(t *testing.T, documents int) *config.Config {
	t.Helper()
	path := testrun.ChatFile(t, tokenizer.Bytes{}.Info(), func(yield func([]int32, []bool) bool) {
		for n := 0; n < documents && yield([]int32("aaaabbbbb"), []bool{8: true}); n++ {
		}
	})
	base := `
model = {layers = 1, width = 32, heads = 2, hidden = 48, context = 16}
data = {kind = "chat", packing = "none", train = "` + path + `", validation = "` + path + `"}
train = {batch = 2, out = "` + t.TempDir() + `"}
schedule = {rate = 3e-3}
quantizer = {plugin = "quest"}
optimizer = {plugin = "adamw"}
`
	return testrun.Parse(t, base)
}

// TestSurveyOfConversations checks that settings which contradict the number of steps derived from
// conversations are found in each configuration, in any order.
func TestSurveyOfConversations(t *testing.T) {
	testlevel.Long(t, "surveys many configurations")
	cases := []struct{ override, problem string }{
		{"schedule.warmup=0.1", ""}, {"schedule.warmup=5000.0", "schedule.warmup"}, {"seed=1", ""},
		{"train.steps=5", ""}, {"train.steps=17", ""}, {"train.steps=18", "train.steps"},
		{"train.accumulate=2", ""},
	}
	base := conversations(t, 34)
	check := func(order []int) {
		var list []*config.Config
		for _, i := range order {
			list = append(list, testrun.Elsewhere(t, base, cases[i].override))
		}
		for n, f := range build.Survey(t.Context(), list, testrun.Finder(t), plugin.Options{}) {
			got := ""
			if e := problemsIn(f.Err); len(e) == 1 {
				got = e[0].Key
			}
			if want := cases[order[n]]; got != want.problem || (f.Err == nil) != (got == "") {
				t.Errorf("in the order %v, %s: a problem of %q, want %q: %v", order, want.override, got,
					want.problem, f.Err)
			}
		}
	}
	check([]int{0, 1, 2, 3, 4, 5, 6})
	check([]int{6, 5, 4, 3, 2, 1, 0})
}

// TestSurveyOfAverages checks that an average is refused for an optimizer with weights of its own
// for evaluation, also after a configuration that differs only in train.average.
func TestSurveyOfAverages(t *testing.T) {
	testlevel.Long(t, "builds a plugin")
	builder, err := plugin.NewFinder()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("..", "..", "..", "examples", "plugins", "schedule-free")
	exe, err := builder.Find(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	cfg := testrun.Config(t, fmt.Sprintf("optimizer={plugin=%q}", exe.Path))
	list := []*config.Config{cfg, testrun.Elsewhere(t, cfg, `train.average="ema"`)}
	for range 2 {
		for i, f := range build.Survey(t.Context(), list, testrun.Finder(t), plugin.Options{}) {
			e := problemsIn(f.Err)
			if refused := len(e) == 1 && e[0].Key == "train.average"; refused != (list[i] != cfg) {
				t.Errorf("%s: %v", list[i].Train.Average, f.Err)
			}
		}
		slices.Reverse(list)
	}
}
