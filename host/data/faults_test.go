package data

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/testing/crashfs"
	"github.com/cage-qat/cage/internal/testing/faultfs"
	"github.com/cage-qat/cage/internal/testing/testfile"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/testing/vfstest"
	"github.com/cage-qat/cage/internal/vfs"
)

// preparing prepares the same small dataset on different file systems.
type preparing struct {
	inputs []string
	tok    tokenizer.Tokenizer
}

func newPreparing(t *testing.T) preparing {
	t.Helper()
	dir, _ := corpus(t, 6)
	testfile.Tree(t, dir, map[string]string{"rows.jsonl": `{"text": "one"}` + "\n" + `{"text": "two"}`,
		"zipped.gz": zipped(t, "three")})
	// Its definition is stored with the tokens.
	tok, err := tokenizer.LoadHuggingFace("tokenizer/testdata/llama3.tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	return preparing{[]string{dir}, tok}
}

func (p preparing) run(t *testing.T, files vfs.FS, out string, seed uint64) error {
	if files == nil {
		files = vfstest.NoSync
	}
	_, err := Prepare(t.Context(), PrepareOptions{Inputs: p.inputs, Tokenizer: p.tok, Files: files,
		Out: out, Seed: seed})
	return err
}

// contents returns the files in a directory by name, the manifest without its time.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	return vfstest.Contents(t, dir, `"seconds"`)
}

// begin returns the path of an older dataset, or a path that does not exist.
func (p preparing) begin(t *testing.T, older bool) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "data", "set")
	if older {
		if err := p.run(t, nil, out, 77); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// whole checks that token files that can be opened are intact, and that preparing again makes the
// dataset want.
func (p preparing) whole(t *testing.T, what, out string, want map[string]string) {
	t.Helper()
	for _, name := range []string{dataset.Texts.Train, dataset.Texts.Val} {
		if f, err := dataset.Open(filepath.Join(out, name)); err == nil {
			if err := f.Verify(t.Context()); err != nil {
				t.Errorf("%s: a damaged file is opened: %v", what, err)
			}
			f.Close()
		}
	}
	if err := p.run(t, nil, out, 0); err != nil {
		t.Errorf("%s: cannot be prepared again: %v", what, err)
		return
	}
	if diff := cmp.Diff(want, contents(t, out)); diff != "" {
		t.Errorf("%s: the dataset differs:\n%s", what, diff)
	}
}

// TestFaults checks that any failing file operation, alone or with all later ones, is reported, and
// that the next preparation makes the right dataset.
func TestFaults(t *testing.T) {
	p := newPreparing(t)
	reference := p.begin(t, false)
	if err := p.run(t, nil, reference, 0); err != nil {
		t.Fatal(err)
	}
	want := contents(t, reference)
	every := testlevel.Sample(16, 2, 1)
	for _, older := range []bool{false, true} {
		for files := range faultfs.Each(t, every, 20) {
			out := p.begin(t, older)
			err := p.run(t, files, out, 0)
			p.whole(t, files.Reported(t, err), out, want)
		}
	}
}

// TestPowerLoss checks that, whenever power is lost, no torn file opens as intact, and the next
// preparation makes the right dataset.
func TestPowerLoss(t *testing.T) {
	testlevel.Long(t, "a preparation for each moment at which power can be lost")
	p := newPreparing(t)
	for _, older := range []bool{false, true} {
		out := p.begin(t, older)
		root := filepath.Dir(filepath.Dir(out))
		files, err := crashfs.New(root)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.run(t, files, out, 0); err != nil {
			t.Fatal(err)
		}
		want := contents(t, out)
		for lost, what := range files.Each(t, testlevel.Choose[uint64](2, 6), 50) {
			p.whole(t, what, filepath.Join(lost, "data", "set"), want)
		}
	}
}

// TestPrepareTwice checks that preparing a dataset twice at once is an error: files would be mixed.
func TestPrepareTwice(t *testing.T) {
	p := newPreparing(t)
	out := p.begin(t, true)
	before := contents(t, out)
	lock, err := vfs.At(out).Join(dataset.LockFile).Lock()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.run(t, nil, out, 1); err == nil ||
		!strings.Contains(err.Error(), "another process is preparing the dataset in "+out) {
		t.Errorf("beside another preparation: %v", err)
	}
	if diff := cmp.Diff(before, contents(t, out)); diff != "" {
		t.Errorf("the dataset has changed:\n%s", diff)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := p.run(t, nil, out, 1); err != nil {
		t.Error(err)
	}
}
