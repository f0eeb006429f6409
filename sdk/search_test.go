package sdk_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/client"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// widest searches for the largest magnitude of a weight, times a trained factor, and adds up the
// numbers of its steps.
type widest struct{ wrong string }

func (widest) Describe() sdk.Description { return sdk.Description{Name: "widest"} }

func (widest) InitTrained(b *program.Builder, x program.Value, _ sdk.Site) (sdk.State, error) {
	return sdk.State{"factor": b.Const(2)}, nil
}

func (q widest) SearchState(site sdk.Site) ([]sdk.StateTensor, int, error) {
	switch q.wrong {
	case "shape":
		return []sdk.StateTensor{{Name: "scale", Shape: []int{0}}}, 1, nil
	case "twice":
		return []sdk.StateTensor{{Name: "scale"}, {Name: "scale"}}, 1, nil
	case "never":
		return []sdk.StateTensor{{Name: "scale"}}, 0, nil
	case "refuses":
		return nil, 0, sdk.Refuse("not this one")
	}
	return []sdk.StateTensor{{Name: "scale"}, {Name: "count"}}, 3, nil
}

func (q widest) Quantize(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	if site.Role != sdk.RoleWeight || site.Product != sdk.ProductForward {
		return sdk.Quantized{Value: x}, nil
	}
	s := site.State["scale"].Scale(0.25)
	out := sdk.Quantized{Value: x.Div(s).Round().Mul(s), Surrogate: x.Mul(site.Trained["factor"])}
	if q.wrong == "next" {
		out.Next = sdk.State{"scale": s}
	}
	return out, nil
}

func (q widest) Search(in sdk.SearchInput, _ sdk.Site) error {
	switch q.wrong {
	case "error":
		return errors.New("no luck")
	case "panic":
		panic("no luck")
	case "x":
		in.X[0]++
	case "state":
		in.State["scale"][0]++
	case "trained":
		in.Trained["factor"][0]++
	}
	in.Next["count"][0] = in.State["count"][0] + float32(in.Step)
	largest := float32(0)
	for _, v := range in.X {
		largest = max(largest, v, -v)
	}
	in.Next["scale"][0] = largest * in.Trained["factor"][0]
	return nil
}

// attachSites attaches memory for two weights to the quantizer.
func attachSites(t *testing.T, q *client.Quantizer) (client.SearchLayout, *os.File) {
	t.Helper()
	var list []client.PlacedSite
	for i, shape := range [][]int{{2, 3}, {40, 1}} {
		site := sdk.Site{Role: sdk.RoleWeight, Product: sdk.ProductForward, Name: string("ab"[i]),
			Shape: shape}
		site.Values, _ = widest{}.Describe().Resolve(nil)
		answer, err := q.Quantize(t.Context(), site, spec.SiteLimits(shape))
		if err != nil {
			t.Fatal(err)
		}
		if answer.SearchEvery != 3 || len(answer.State) != 2 || answer.State[0].Name != "count" ||
			answer.InitState != nil || answer.Next != nil {
			t.Fatalf("the answer is %+v", answer)
		}
		list = append(list, client.PlacedSite{Site: site, Answer: answer})
	}
	l := client.ArrangeSites(list)
	f, err := os.Create(filepath.Join(t.TempDir(), "memory"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := f.Truncate(l.Bytes); err != nil {
		t.Fatal(err)
	}
	if err := q.AttachSites(t.Context(), f.Name(), l); err != nil {
		t.Fatal(err)
	}
	return l, f
}

func searcher(t *testing.T, q sdk.Quantizer) *client.Quantizer {
	c, _ := connect(t, q, nil)
	return c
}

// TestSearch checks that a search changes only the named sites, and gives the same result when it
// is repeated, as after a crash.
func TestSearch(t *testing.T) {
	q := searcher(t, widest{})
	if info, err := q.Describe(t.Context()); err != nil || info.Name != "widest" {
		t.Errorf("got %+v, %v", info, err)
	}
	l, f := attachSites(t, q)
	a, b := l.Sites[0], l.Sites[1]
	put(t, f, a.X, 1, -5, 3)
	put(t, f, a.TrainedAt[0], 0.5)
	put(t, f, a.StateAt[0], 10)
	put(t, f, b.NextAt[0], 7)
	for range 2 {
		if err := q.Search(t.Context(), 6, 9, []int{0}); err != nil {
			t.Fatal(err)
		}
		got := slices.Concat(numbers(t, f, a.NextAt[0], 1), numbers(t, f, a.NextAt[1], 1),
			numbers(t, f, b.NextAt[0], 1))
		if want := []float32{16, 2.5, 7}; !slices.Equal(got, want) {
			t.Errorf("count and scale of a, and count of b, are %v, want %v", got, want)
		}
	}
	if err := q.Search(t.Context(), 0, 9, []int{0, 1}); err != nil {
		t.Fatal(err)
	}
	if got := numbers(t, f, b.NextAt[0], 1); got[0] != 0 {
		t.Errorf("the count of b is %v", got)
	}
}

// TestSearchMistakes checks that the error of an author's mistake names the site, and that the
// plugin keeps running.
func TestSearchMistakes(t *testing.T) {
	for wrong, want := range map[string]string{
		"error":   "no luck",
		"panic":   "panic: no luck (search_test.go",
		"x":       "X, Trained or State, which are read-only (search_test.go",
		"state":   "are read-only (search_test.go",
		"trained": "are read-only (search_test.go",
	} {
		t.Run(wrong, func(t *testing.T) {
			q := searcher(t, widest{wrong})
			attachSites(t, q)
			for range 2 {
				err := q.Search(t.Context(), 0, 1, []int{1, 0})
				if _, ok := errors.AsType[*client.Mistake](err); !ok || !strings.Contains(err.Error(), want) ||
					!strings.Contains("a: b: ", err.Error()[:3]) {
					t.Errorf("got %v, want a mistake with %q that names the site", err, want)
				}
			}
		})
	}
}

// stateAndSearch has state of both kinds, which is an error.
type stateAndSearch struct{ widest }

func (stateAndSearch) InitState(
	b *program.Builder, x program.Value, _ sdk.Site,
) (sdk.State, error) {
	return sdk.State{"mean": x.MeanAll()}, nil
}

// TestSearchAnswers checks invalid answers, and sites that have no state.
func TestSearchAnswers(t *testing.T) {
	for want, q := range map[string]sdk.Quantizer{
		"axis 0 has 0 elements": widest{"shape"}, `SearchState returns "scale" twice`: widest{"twice"},
		"an interval of 0 steps, want at least 1": widest{"never"},
		"not this one": widest{"refuses"}, "Next is set, but searches compute": widest{"next"},
		"InitState returns the state mean, but SearchState the state scale": stateAndSearch{},
	} {
		site := weight
		site.Values, _ = widest{}.Describe().Resolve(nil)
		if _, err := sdk.BuildQuantizer(q, site); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	right, err := sdk.BuildQuantizer(widest{}, weight)
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(q *spec.Quantizer){
		"interval is -1 steps":                func(q *spec.Quantizer) { q.SearchEvery = -1 },
		"interval is 2147483648 steps":        func(q *spec.Quantizer) { q.SearchEvery = 1 << 31 },
		"searches and programs for the state": func(q *spec.Quantizer) { q.Next = q.Program },
		"the init_state program is required":  func(q *spec.Quantizer) { q.SearchEvery = 0 },
	} {
		wrong := right
		change(&wrong)
		if err := wrong.Check(weight.Shape); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	for _, site := range []sdk.Site{{Role: sdk.RoleActivation, Name: "a", Shape: []int{4, 4}},
		{Role: sdk.RoleWeight, Product: sdk.ProductInputGradient, Name: "w", Shape: []int{4, 4}}} {
		type plain struct {
			sdk.Quantizer
			sdk.Searcher
		}
		if out, err := sdk.BuildQuantizer(plain{widest{}, widest{}}, site); err != nil ||
			out.SearchEvery != 0 || len(out.State) > 0 {
			t.Errorf("%s, %s: %+v, %v; want no state", site.Role, site.Product, out, err)
		}
	}
}

// TestSearchOrder checks a search before memory is attached, and memory that does not fit.
func TestSearchOrder(t *testing.T) {
	q := searcher(t, widest{})
	if err := q.Search(t.Context(), 0, 1, []int{0}); !errors.Is(err, client.ErrVersion) {
		t.Errorf("a search before AttachSites: %v", err)
	}
	l, f := attachSites(t, q)
	for want, change := range map[string]func(l *client.SearchLayout){
		"not within": func(l *client.SearchLayout) { l.Sites[0].X = l.Bytes - 4 },
		"fewer than": func(l *client.SearchLayout) { l.Bytes *= 2 },
		"1 state tensors and 2 for their next values": func(l *client.SearchLayout) {
			l.Sites[0].StateAt = l.Sites[0].StateAt[:1]
		},
		"attached 0 trained parameters": func(l *client.SearchLayout) {
			l.Sites[1].TrainedAt = nil
		},
	} {
		changed := client.SearchLayout{Bytes: l.Bytes, Sites: slices.Clone(l.Sites)}
		change(&changed)
		if err := q.AttachSites(t.Context(), f.Name(), changed); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	if err := q.Search(t.Context(), 0, 1, []int{0, 1}); err != nil {
		t.Errorf("after memory that was refused, the old one: %v", err)
	}
}
