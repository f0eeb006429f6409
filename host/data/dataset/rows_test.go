package dataset

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/internal/testing/testfile"
)

func newRows(t testing.TB, f *File, c RowsConfig) *Rows {
	t.Helper()
	s, err := NewRows(f, c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// emptyRows returns n rows for [Rows.At].
func emptyRows(n, length int) []Row {
	return RowsOf(make([]int32, n*Planes*(length+1)), length)
}

// targetWeights returns the weights of the targets of a row, which begin at position 1.
func targetWeights(r Row) (list []float32) {
	for position := range r.Tokens[1:] {
		list = append(list, r.Weight(position+1))
	}
	return list
}

// compareRow returns the difference of a row, whose last position must be padding, to these tokens,
// segments and weights of targets.
func compareRow(r Row, tokens, segments []int32, weights []float32) string {
	type row struct {
		Tokens, Segments []int32
		Weights          []float32
	}
	return cmp.Diff(row{append(tokens, 0), append(segments, Padding), weights},
		row{r.Tokens, r.Segments, targetWeights(r)})
}

// read returns the rows of a step.
func read(t testing.TB, s *Rows, step int64) []Row {
	t.Helper()
	batch := emptyRows(s.config.Batch, s.config.Length)
	if _, err := s.At(step, 0, batch); err != nil {
		t.Fatal(err)
	}
	return batch
}

// TestGoldenRows compares the rows of documents in order with those of the reference
// implementation.
func TestGoldenRows(t *testing.T) {
	var golden struct {
		Length    int       `json:"row_length"`
		Documents [][]int32 `json:"documents"`
		Masks     [][]int   `json:"document_loss_masks"`
		Rows      []struct {
			Documents, Tokens, Segments []int32
			Weights                     []float32 `json:"target_weights"`
		} `json:"rows"`
	}
	testfile.ReadJSON(t, "testdata/packing.golden.json", &golden)
	if len(golden.Rows) == 0 || len(golden.Masks) != len(golden.Documents) {
		t.Fatalf("%d rows in the reference, %d masks of %d documents", len(golden.Rows),
			len(golden.Masks), len(golden.Documents))
	}
	var loss [][]bool
	for _, mask := range golden.Masks {
		var l []bool
		for _, m := range mask {
			l = append(l, m == 1)
		}
		loss = append(loss, l)
	}
	s := newRows(t, store(t, origin, golden.Documents, loss),
		RowsConfig{Length: golden.Length, Batch: len(golden.Rows), Epochs: 1, Packing: FirstFit,
			InOrder: true})
	if s.Steps() != 1 { // another row would need a second step
		t.Errorf("%d steps, want 1", s.Steps())
	}
	for i, got := range read(t, s, 0) {
		want := golden.Rows[i]
		if diff := compareRow(got, want.Tokens, want.Segments, want.Weights); diff != "" {
			t.Errorf("row %d:\n%s", i, diff)
		}
		if diff := cmp.Diff(fmt.Sprint(want.Documents), fmt.Sprint(s.layout[i])); diff != "" {
			t.Errorf("row %d, documents:\n%s", i, diff)
		}
	}
}

// TestFirstFit checks that the tree finds the same rows as a linear search.
func TestFirstFit(t *testing.T) {
	const length = 50
	var sizes []int
	for i := range 500 {
		sizes = append(sizes, 1+(i*i*7+i*13)%length)
	}
	var want [][]uint32
	var free []int
	for i, n := range sizes {
		r := slices.IndexFunc(free, func(room int) bool { return room >= n })
		if r < 0 {
			r, free, want = len(free), append(free, length), append(want, nil)
		}
		free[r] -= n
		want[r] = append(want[r], uint32(i))
	}
	documents := make([]uint32, len(sizes))
	for i := range documents {
		documents[i] = uint32(i)
	}
	got := FirstFit.pack(documents, func(d uint32) int { return sizes[d] }, length)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// seen returns the first tokens of the documents in a batch.
func seen(batch []Row) (first []int32) {
	for _, r := range batch {
		for i, segment := range r.Segments {
			if segment != Padding && (i == 0 || segment != r.Segments[i-1]) {
				first = append(first, r.Tokens[i])
			}
		}
	}
	return first
}

// TestRowsEpochs checks that every document comes once per epoch, in new orders, and that a batch
// does not depend on those before. Empty rows pad the last batch of an epoch.
func TestRowsEpochs(t *testing.T) {
	f := lengths(t, 5, 3, 8, 2, 9, 4, 4, 7, 6, 3, 10)
	for _, packing := range []Packing{FirstFit, NoPacking} {
		config := RowsConfig{Length: 10, Batch: 3, Epochs: 3, Packing: packing, Seed: 7}
		s := newRows(t, f, config)
		var orders [][]int32
		var batches [][]Row
		begin := int64(0)
		for _, end := range s.ends {
			var order []int32
			for step := begin; step < end; step++ {
				batch := read(t, s, step)
				batches = append(batches, batch)
				order = append(order, seen(batch)...)
			}
			begin = end
			sorted := slices.Sorted(slices.Values(order))
			if want := []int32{0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100}; !slices.Equal(sorted, want) {
				t.Errorf("%s: an epoch has the documents %v, want %v", packing, sorted, want)
			}
			orders = append(orders, order)
		}
		if slices.Equal(orders[0], orders[1]) || slices.Equal(orders[1], orders[2]) {
			t.Errorf("%s: epochs have the same order: %v", packing, orders)
		}
		if int64(len(batches)) != s.Steps() {
			t.Errorf("%s: %d steps, %d batches", packing, s.Steps(), len(batches))
		}
		for step := s.Steps() - 1; step >= 0; step-- {
			if diff := cmp.Diff(batches[step], read(t, newRows(t, f, config), step),
				cmp.AllowUnexported(Row{})); diff != "" {
				t.Errorf("%s: step %d alone differs:\n%s", packing, step, diff)
			}
		}
		if packing == NoPacking && s.Steps() != 12 {
			t.Errorf("11 documents in rows of their own, 3 a step, 3 times: %d steps, want 12", s.Steps())
		}
		config.Seed++
		if other := newRows(t, f, config); cmp.Equal(batches[0], read(t, other, 0),
			cmp.AllowUnexported(Row{})) {
			t.Errorf("%s: another seed gives the same batch", packing)
		}
	}
}

// TestParts checks that the rows of a step can be read in parts.
func TestParts(t *testing.T) {
	s := newRows(t, lengths(t, 5, 5, 5), RowsConfig{Length: 5, Batch: 4, Epochs: 1, Packing: FirstFit})
	whole := read(t, s, 0)
	var parts []Row
	for i, want := range []int{1, 1, 1, 0} {
		row := emptyRows(1, 5)
		filled, err := s.At(0, i, row)
		if err != nil || filled != want {
			t.Errorf("row %d: %d filled, %v, want %d", i, filled, err, want)
		}
		parts = append(parts, row...)
	}
	if diff := cmp.Diff(whole, parts, cmp.AllowUnexported(Row{})); diff != "" {
		t.Error(diff)
	}
}

// TestCut checks that documents longer than a row are truncated, and left out if they then have no
// loss.
func TestCut(t *testing.T) {
	ids := []int32{1, 2, 3, 4, 5, 6}
	f := store(t, origin, [][]int32{ids, ids},
		[][]bool{{false, false, true, true, true, true}, {true, false, false, false, true, true}})
	s := newRows(t, f, RowsConfig{Length: 4, Batch: 1, Epochs: 1, Packing: FirstFit, InOrder: true})
	if s.Steps() != 1 || s.LeftOut() != 1 {
		t.Errorf("%d steps, %d left out, want 1 and 1", s.Steps(), s.LeftOut())
	}
	if diff := compareRow(read(t, s, 0)[0], []int32{1, 2, 3, 4}, []int32{0, 0, 0, 0},
		[]float32{0, 1, 1, 0}); diff != "" {
		t.Error(diff)
	}
	if _, err := NewRows(f,
		RowsConfig{Length: 2, Batch: 1, Epochs: 1, Packing: NoPacking}); err == nil ||
		!strings.Contains(err.Error(), "no document that counts in the loss in its first 2 tokens") {
		t.Errorf("rows that are too short: %v", err)
	}
}

// TestRowsMistakes checks that invalid settings are errors.
func TestRowsMistakes(t *testing.T) {
	f := lengths(t, 3)
	good := RowsConfig{Length: 4, Batch: 1, Epochs: 1, Packing: FirstFit}
	for want, change := range map[string]func(*RowsConfig){
		"rows of 1 tokens":   func(c *RowsConfig) { c.Length = 1 },
		"batches of 0 rows":  func(c *RowsConfig) { c.Batch = 0 },
		"and 0 epochs":       func(c *RowsConfig) { c.Epochs = 0 },
		`packing "tight", w`: func(c *RowsConfig) { c.Packing = "tight" },
	} {
		c := good
		change(&c)
		if _, err := NewRows(f, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
