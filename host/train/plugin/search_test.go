package plugin

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

func init() {
	behaviours["search"] = func() { sdk.ServeQuantizer(testSearch{}) }
}

// testSearch adds the weight to its state: s ← s + x. Its parameter "do" makes it misbehave in the
// search after step 2; if "once" names a path, only once.
type testSearch struct{}

func (testSearch) Describe() sdk.Description { return testOpaque{}.Describe() }

func (testSearch) SearchState(site sdk.Site) ([]spec.Tensor, int, error) {
	return []spec.Tensor{{Name: "s", Shape: site.Shape}, {Name: "t"}}, 1, nil
}

func (testSearch) Quantize(
	_ *program.Builder, _ program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	return sdk.Quantized{Value: site.State["s"]}, nil
}

func (testSearch) Search(in sdk.SearchInput, site sdk.Site) error {
	misbehaves := in.Step == 2
	if misbehaves && site.Text("do") == "late" {
		writeLate(site.Text("once"))
		misbehaves = false
	}
	if once := site.Text("once"); misbehaves && once != "" {
		misbehaves = os.Mkdir(once, 0o700) == nil
	}
	do := ""
	if misbehaves {
		do = site.Text("do")
	}
	in.Next["t"][0] = 77 // an incomplete result
	switch do {
	case "exit":
		os.Exit(7)
	case "spoil":
		if err := spoil(); err != nil {
			return err
		}
		os.Exit(7)
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "hang":
		time.Sleep(time.Hour)
	case "panic":
		panic("no luck")
	case "error":
		return errors.New("no luck")
	case "size":
		in.Next["s"][len(in.X)] = 1
	case "fault":
		in.X[0]++
	}
	s, next := in.State["s"], in.Next["s"]
	for i, x := range in.X {
		next[i] = s[i] + x
	}
	in.Next["t"][0] = float32(in.Step*100 + in.Steps)
	switch do {
	case "nan":
		in.Next["s"][5] = float32(math.NaN())
	case "infinite":
		in.Next["t"][0] = float32(math.Inf(-1))
	}
	return nil
}

// searcher returns a Searcher of the search plugin with two weights.
func searcher(t *testing.T, values map[string]any) *Searcher {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("searches of quantizers need Linux")
	}
	c := start(t, "search", sdk.KindQuantizer, Options{})
	c.Close() // the searcher starts its own process
	v, err := c.Resolve(values)
	if err != nil {
		t.Fatal(err)
	}
	var list []SearchedSite
	for name, shape := range map[string][]int{"a": {2, 3}, "b": {1, 5}} {
		site := sdk.Site{Role: sdk.RoleWeight, Product: sdk.ProductForward, Name: name, Shape: shape,
			Values: v}
		if name == "b" {
			site.Values, _ = c.Resolve(nil)
		}
		answer, err := sdk.BuildQuantizer(testSearch{}, site)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, SearchedSite{Site: site, Answer: answer})
	}
	s, err := NewSearcher(t.Context(), c, list, 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// threeSearches runs searches of weights 1, 2, 3, each followed by a call of after. It returns the
// last states of a and b, or the error of the second search.
func threeSearches(
	t *testing.T, s *Searcher, after ...func(step int),
) (found []float32, err error) {
	t.Helper()
	for step := 1; step <= 3; step++ {
		for _, name := range []string{"a", "b"} {
			in, out := s.Buffers(name)
			x, state := in[program.KindParam.Of(name)], program.KindQuantizerState.PartOf(name, "s")
			for i := range x {
				x[i] = float32(step)
			}
			copy(in[state], out[state])
		}
		in, _ := s.Buffers("a")
		state := in[program.KindQuantizerState.PartOf("a", "s")]
		before := slices.Clone(state)
		if err := s.Search(t.Context(), step, []string{"b", "a"}); err != nil {
			if !slices.Equal(before, state) {
				t.Errorf("the state is %v after an error, and was %v", state, before)
			}
			if step != 2 {
				t.Fatal(err)
			}
			return nil, err
		}
		for _, f := range after {
			f(step)
		}
	}
	for _, of := range [][2]string{{"a", "s"}, {"b", "s"}, {"b", "t"}} {
		_, out := s.Buffers(of[0])
		found = append(found, out[program.KindQuantizerState.PartOf(of[0], of[1])]...)
	}
	return found, nil
}

// TestSearchCrashes checks that a search that crashes or hangs once is repeated, with the same
// result.
func TestSearchCrashes(t *testing.T) {
	testlevel.Long(t, "waits for processes that crash")
	t.Setenv(SearchTimeoutVariable, "1s")
	for _, do := range []string{"", "exit", "spoil", "kill", "hang"} {
		t.Run(do, func(t *testing.T) {
			found, err := threeSearches(t,
				searcher(t, map[string]any{"do": do, "once": filepath.Join(t.TempDir(), "once")}))
			if want := []float32{6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 303}; err != nil ||
				!slices.Equal(found, want) {
				t.Errorf("got %v, %v, want %v", found, err, want)
			}
		})
	}
}

// TestSearchIsKilledBetween checks that a process that ends between searches is restarted.
func TestSearchIsKilledBetween(t *testing.T) {
	s := searcher(t, nil)
	for step := range 2 {
		if err := s.Search(t.Context(), step, []string{"a"}); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(s.running.PID(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSearchIsInterrupted checks that a canceled search ends with its process, and can be repeated.
func TestSearchIsInterrupted(t *testing.T) {
	s := searcher(t, map[string]any{"do": "hang", "once": filepath.Join(t.TempDir(), "once")})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.Search(ctx, 2, []string{"a"}); !errors.Is(err, context.DeadlineExceeded) ||
		s.running != nil {
		t.Errorf("got %v; it runs: %t", err, s.running != nil)
	}
	if err := s.Search(t.Context(), 2, []string{"a"}); err != nil {
		t.Error(err)
	}
}

// searchFailures lists searches that fail repeatedly, or would fail again, and the expected errors.
var searchFailures = []struct {
	do    string
	kind  error
	words []string
}{
	{"exit", ErrShutdown, []string{"exited with status 7, 3 times in a row in this search"}},
	{"hang", ErrTimeout, []string{"did not answer within 500ms (CAGE_PLUGIN_SEARCH_TIMEOUT=5m",
		"3 times"}},
	{"panic", ErrFailed, []string{"a: panic: no luck (search_test.go"}},
	{"error", ErrFailed, []string{"a: no luck"}},
	{"size", ErrFailed, []string{
		"a: panic: runtime error: index out of range [6] with length 6 (search_test.go"}},
	{"fault", ErrFailed, []string{"a: panic: it writes to X, Trained or State"}},
	{"nan", ErrFailed, []string{
		": a: it wrote NaN to element 5 of the state s; all that it was given is finite"}},
	{"infinite", ErrFailed, []string{": a: it wrote -Inf to element 0 of the state t"}},
}

func TestSearchFailures(t *testing.T) {
	t.Setenv(SearchTimeoutVariable, "500ms")
	for _, c := range searchFailures {
		t.Run(c.do, func(t *testing.T) {
			t.Parallel()
			_, err := threeSearches(t, searcher(t, map[string]any{"do": c.do}))
			check(t, err, c.kind, append(c.words, "plugin search")...)
		})
	}
}

// TestSearchTimeLimit checks that the error for an invalid time limit names it and its variable.
func TestSearchTimeLimit(t *testing.T) {
	t.Setenv(SearchTimeoutVariable, "soon")
	c := start(t, "search", sdk.KindQuantizer, Options{})
	_, err := NewSearcher(t.Context(), c, nil, 1)
	check(t, err, ErrStart, "CAGE_PLUGIN_SEARCH_TIMEOUT", "soon")
}
