package data

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/testing/vfstest"
)

// TestSplitIsAPartition checks that every document is in one part, with any fraction.
func TestSplitIsAPartition(t *testing.T) {
	dir, texts := corpus(t, 97)
	for fraction, wantVal := range map[float64]int{0: 1, 0.0005: 1, 0.1: 10, 0.5: 48, 0.999: 96} {
		m, d := prepare(t, PrepareOptions{Inputs: []string{dir}, ValFraction: fraction})
		train, val := documentsOf(t, d.Train), documentsOf(t, d.Val)
		if len(val) != wantVal || len(train) != 97-wantVal {
			t.Errorf("fraction %v: %d + %d documents, want %d for validation", fraction, len(train),
				len(val), wantVal)
		}
		if diff := cmp.Diff(slices.Sorted(slices.Values(texts)), allOf(t, d)); diff != "" {
			t.Errorf("fraction %v (-want +got):\n%s", fraction, diff)
		}
		if m.Train.Bytes+m.Val.Bytes != int64(len(strings.Join(texts, ""))) ||
			m.Train.Tokens != m.Train.Bytes+m.Train.Documents {
			t.Errorf("fraction %v: counts %+v, %+v", fraction, m.Train, m.Val)
		}
		if m.Train.Documents != int64(len(train)) || m.Val.Documents != int64(len(val)) {
			t.Errorf("fraction %v: counts %+v, %+v", fraction, m.Train, m.Val)
		}
	}
}

// TestPrepareIsDeterministic checks that files depend on the seed, but not on the folder, the
// number of processors or chance.
func TestPrepareIsDeterministic(t *testing.T) {
	hashes := func(seed uint64) [2]string {
		dir, _ := corpus(t, 50)
		m, _ := prepare(t, PrepareOptions{Inputs: []string{dir}, ValFraction: 0.2, Seed: seed})
		return [2]string{m.Train.SHA256, m.Val.SHA256}
	}
	first := hashes(DefaultSplitSeed)
	for _, procs := range []int{1, 2, 8} {
		before := runtime.GOMAXPROCS(procs)
		got := hashes(DefaultSplitSeed)
		runtime.GOMAXPROCS(before)
		if got != first {
			t.Errorf("with %d processors: %v, want %v", procs, got, first)
		}
	}
	for _, seed := range []uint64{0, 1} {
		if hashes(seed) == first {
			t.Errorf("seed %d gave the split of the default seed", seed)
		}
	}
	var want struct{ Train, Val string }
	testfile.ReadJSON(t, "testdata/split.golden.json", &want)
	if first != [2]string{want.Train, want.Val} {
		t.Errorf("hashes %v, want %v on every machine", first, want)
	}
}

func TestPrepareSeparator(t *testing.T) {
	dir := t.TempDir()
	testfile.Tree(t, dir, map[string]string{"all": "one<|end|>two<|end|>three<|end|>\n"})
	m, d := prepare(t, PrepareOptions{Inputs: []string{dir}, Separator: "<|end|>"})
	if diff := cmp.Diff([]string{"one", "three", "two"}, allOf(t, d)); diff != "" ||
		m.Val.Documents != 1 {
		t.Errorf("%+v %s", m, diff)
	}
}

func TestPrepareValInputs(t *testing.T) {
	dir, texts := corpus(t, 30)
	_, d := prepare(t, PrepareOptions{Inputs: []string{dir},
		ValInputs: []string{filepath.Join(dir, "d1")}})
	train, val := documentsOf(t, d.Train), documentsOf(t, d.Val)
	slices.Sort(train)
	slices.Sort(val)
	if diff := cmp.Diff(slices.Sorted(slices.Values(texts[10:20])), val); diff != "" {
		t.Errorf("validation (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(slices.Concat(texts[:10], texts[20:]))),
		train); diff != "" {
		t.Errorf("training (-want +got):\n%s", diff)
	}
}

func TestPrepareMaxBytes(t *testing.T) {
	dir, texts := corpus(t, 60)
	total := int64(len(strings.Join(texts, "")))
	var before int64
	for _, bound := range []int64{100, total / 2, total - 1, total, total + 1} {
		m, _ := prepare(t, PrepareOptions{Inputs: []string{dir}, MaxBytes: bound})
		got := m.Train.Bytes + m.Val.Bytes
		if got > bound || got < before || got < bound-60 && bound < total {
			t.Errorf("at most %d bytes: %d taken", bound, got)
		}
		before = got
	}
	if before != total {
		t.Errorf("%d of %d bytes taken without need", before, total)
	}
}

// TestLongDocumentBesideABound checks that a document longer than the limit is skipped, and does
// not end the selection.
func TestLongDocumentBesideABound(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{"long": strings.Repeat("x", 1000)}
	for i := range 20 {
		files[fmt.Sprintf("%d", i)] = fmt.Sprintf("document %2d", i)
	}
	testfile.Tree(t, dir, files)
	for seed := range uint64(8) {
		m, _ := prepare(t, PrepareOptions{Inputs: []string{dir}, MaxBytes: 100, Seed: seed})
		if got := m.Train.Documents + m.Val.Documents; got != 9 {
			t.Fatalf("seed %d: %d documents of 11 bytes in 100, want 9", seed, got)
		}
	}
}

func TestPrepareProgress(t *testing.T) {
	dir, texts := corpus(t, 20)
	var last [2]Progress
	prepare(t, PrepareOptions{Inputs: []string{dir}, Progress: func(p Progress) {
		stage := slices.Index([]string{"scan", "encode"}, p.Stage)
		if p.Bytes < last[stage].Bytes || p.Bytes > p.TotalBytes {
			t.Errorf("progress went from %+v to %+v", last[stage], p)
		}
		last[stage] = p
	}})
	total := int64(len(strings.Join(texts, "")))
	for _, p := range last {
		if p.Documents != 20 || p.Bytes != total || p.TotalBytes != total {
			t.Errorf("at the end %+v", p)
		}
	}
}

func TestPrepareRefuses(t *testing.T) {
	dir, _ := corpus(t, 5)
	single := filepath.Join(dir, "d0", "0000.txt")
	empty := t.TempDir()
	good := PrepareOptions{Inputs: []string{dir}, Files: vfstest.NoSync, Tokenizer: tokenizer.Bytes{}}
	tests := map[string]struct {
		change func(*PrepareOptions)
		want   string
	}{
		"no input":     {func(o *PrepareOptions) { o.Inputs = nil }, "no input"},
		"no output":    {func(o *PrepareOptions) { o.Out = "" }, "no output"},
		"no tokenizer": {func(o *PrepareOptions) { o.Tokenizer = nil }, "no tokenizer"},
		"missing input": {
			func(o *PrepareOptions) { o.Inputs = []string{filepath.Join(dir, "none")} }, "none"},
		"one document": {func(o *PrepareOptions) { o.Inputs = []string{single} },
			"cannot split one document"},
		"nothing found":    {func(o *PrepareOptions) { o.Include = []string{"*.go"} }, `"*.go"`},
		"bad pattern":      {func(o *PrepareOptions) { o.Include = []string{"["} }, "include pattern"},
		"fraction 1":       {func(o *PrepareOptions) { o.ValFraction = 1 }, "fraction 1"},
		"fraction NaN":     {func(o *PrepareOptions) { o.ValFraction = math.NaN() }, "fraction NaN"},
		"negative bound":   {func(o *PrepareOptions) { o.MaxBytes = -1 }, "-1 bytes"},
		"tiny bound":       {func(o *PrepareOptions) { o.MaxBytes = 3 }, "at most 3 bytes"},
		"binary separator": {func(o *PrepareOptions) { o.Separator = "\x00" }, "separator"},
		"two ways to split": {
			func(o *PrepareOptions) {
				o.ValInputs = []string{dir}
				o.ValFraction = 0.5
			}, "mutually exclusive"},
		"empty validation": {func(o *PrepareOptions) { o.ValInputs = []string{empty} },
			"for validation"},
		"all for validation": {func(o *PrepareOptions) { o.ValInputs = []string{dir} },
			"no document found"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			options := good
			options.Out = filepath.Join(t.TempDir(), "out")
			test.change(&options)
			_, err := Prepare(context.Background(), options)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			if _, err := os.Stat(options.Out); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("something was left behind: %v", err)
			}
		})
	}
}

// TestPrepareCancelled checks that canceling leaves an earlier dataset unchanged.
func TestPrepareCancelled(t *testing.T) {
	testlevel.Long(t, "two preparations of 200 files")
	dir, _ := corpus(t, 200)
	out := t.TempDir()
	before, _ := prepare(t, PrepareOptions{Inputs: []string{dir}, Out: out})
	for _, stage := range []string{"scan", "encode"} {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		_, err := Prepare(ctx, PrepareOptions{Inputs: []string{dir}, Out: out, Seed: 99,
			Tokenizer: tokenizer.Bytes{},
			Progress: func(p Progress) {
				if p.Stage == stage && p.Documents == 5 {
					cancel()
				}
			}})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled in %s: %v", stage, err)
		}
		entries, err := os.ReadDir(out)
		// one of them is the lock
		if err != nil || len(entries) != 4 || manifestIn(t, out).Train.SHA256 != before.Train.SHA256 ||
			len(damaged(t, out)) > 0 {
			t.Errorf("cancelled in %s: left %v, %v", stage, entries, err)
		}
	}
}

func BenchmarkPrepare(b *testing.B) {
	dir := b.TempDir()
	files := map[string]string{}
	for i := range 200 {
		files[fmt.Sprintf("%03d.txt", i)] = strings.Repeat(
			fmt.Sprintf("line %d of a text like any other\n", i), 1000)
	}
	testfile.Tree(b, dir, files)
	for _, spec := range []string{"bytes", "tokenizer/testdata/llama3.tokenizer.json",
		"tokenizer/testdata/llama2.tokenizer.json"} {
		t, err := tokenizer.Open(spec)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(t.Info().Name, func(b *testing.B) {
			for b.Loop() {
				m, err := Prepare(context.Background(), PrepareOptions{Inputs: []string{dir}, Out: b.TempDir(),
					Tokenizer: t})
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(m.Train.Bytes + m.Val.Bytes)
			}
		})
	}
}
