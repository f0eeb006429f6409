package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"

	"github.com/cage-qat/cage/internal/testing/testlevel"
)

func TestByName(t *testing.T) {
	for name, want := range map[string]struct {
		Format
		Compression
	}{
		"a.txt": {Text, None}, "a": {Text, None}, "a.json": {Text, None}, "dir.jsonl/a.md": {Text, None},
		"a.go.gz": {Text, Gzip},
		"A.JSONL": {JSONL, None}, "a.ndjson.zst": {JSONL, Zstd}, "a.jsonlines.GZ": {JSONL, Gzip},
		"a.b.parquet": {Parquet, None}, "a.parquet.gz": {Parquet, Gzip},
		".jsonl": {JSONL, None}, "a.zstd": {Text, Zstd},
	} {
		format, compression := ByName(name)
		if format != want.Format || compression != want.Compression {
			t.Errorf("%s: %s, %s", name, format, compression)
		}
	}
	if _, err := ParseFormat("csv"); err == nil ||
		!strings.Contains(err.Error(), "want text, jsonl or parquet") {
		t.Errorf("format csv: %v", err)
	}
}

func pack(t testing.TB, kind Compression, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&out)
	if kind == Zstd {
		w, _ = zstd.NewWriter(&out)
	}
	_, err := w.Write(content)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func unpack(kind Compression, content []byte) ([]byte, error) {
	r, err := Decompress(bytes.NewReader(content), kind)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func TestDecompress(t *testing.T) {
	text := []byte(strings.Repeat("a text that is said again and again\n", 1000))
	for _, kind := range []Compression{Gzip, Zstd} {
		packed := pack(t, kind, text)
		if got, err := unpack(kind, append(packed, packed...)); err != nil ||
			!bytes.Equal(got, append(text, text...)) {
			t.Errorf("two members of %s: %d bytes, %v", kind, len(got), err)
		}
		for n := range len(packed) {
			var damaged *DamagedError
			if _, err := unpack(kind, packed[:n]); !errors.As(err, &damaged) && !(n == 0 && kind == Zstd) {
				t.Errorf("%s cut at byte %d: %v", kind, n, err)
			}
		}
		if _, err := unpack(kind, []byte("plain text, not compressed at all")); err == nil ||
			!strings.Contains(err.Error(), "not a "+string(kind)+" file") {
			t.Errorf("plain text as %s: %v", kind, err)
		}
		changed := bytes.Clone(packed)
		changed[len(changed)-1] ^= 1
		if _, err := unpack(kind, changed); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s with a changed byte: %v", kind, err)
		}
	}
	broken := errors.New("broken disk")
	if _, err := Decompress(io.MultiReader(strings.NewReader("\x1f\x8b"), failing{broken}),
		Gzip); !errors.Is(err, broken) {
		t.Errorf("an error of the file: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// rowsOf returns the texts in a field of rows, and errors of rows in <>.
func rowsOf(rows iter.Seq2[Row, error], field string) (got []string, err error) {
	for row, err := range rows {
		if err != nil {
			return got, err
		}
		row.Extract(field)
		switch {
		case row.Err != nil:
			got = append(got, "<"+row.Err.Error()+">")
		default:
			got = append(got, fmt.Sprintf("%d %s", row.Number, row.Text))
		}
	}
	return got, nil
}

func TestJSONL(t *testing.T) {
	in := "\xef\xbb\xbf" + `{"text": "one", "id": 1}
{"id": {"text": "no"}, "text": "t\"w\u00f6\n\ud83d\ude00"}` + "\r\n\n  \n" + `{"id": 3}
{"text": 4}
{"text": null}
{"text": ["x"]}
["text"]
{"text": "seven"
{"text": "eight"} {"text": "more"}
{"text": "a` + "\xff" + `"}
{"text": "a\u0000"}
{"text": "a", "text": "b"}
{"text": "\ud800"}
{'text': "x"}
{"text": ""}
{"text": "last"}`
	want := []string{"1 one", "2 t\"wö\n😀",
		`<line 5: no field "text">`, `<line 6: field "text" is not a string>`,
		`<line 7: field "text" is not a string>`,
		`<line 8: field "text" is not a string>`, `<line 9: not an object with the field "text">`,
		"<line 10: not valid JSON: it ends in the middle>",
		"<line 11: not valid JSON: invalid character '{' after top-level value (byte 19)>",
		"<line 12: not valid JSON: invalid UTF-8 (byte 12)>", "<line 13: the text has a zero byte>"}
	got, err := rowsOf(ReadObjects(strings.NewReader(in)), "text")
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 16 {
		t.Fatalf("%d rows: %q", len(got), got)
	}
	if diff := cmp.Diff(want, got[:11]); diff != "" {
		t.Error(diff)
	}
	for i, part := range []string{"<line 14: text: duplicate key", "<line 15: not valid JSON: ",
		"<line 16: not valid JSON: ", "17 ", "18 last"} {
		if !strings.HasPrefix(got[11+i], part) {
			t.Errorf("row %d: %q, want %q", 11+i, got[11+i], part)
		}
	}
}

func TestLongLines(t *testing.T) {
	testlevel.Long(t, "lines of 64 MiB")
	long := `{"text": "` + strings.Repeat("x", 3<<20) + `"}`
	tooLong := `{"text": "` + strings.Repeat("x", MaxRow) + `"}`
	got, err := rowsOf(
		ReadObjects(strings.NewReader(long+"\n"+tooLong+"\n"+`{"text": "c"}`+"\n"+tooLong)), "text")
	if err != nil || len(got) != 4 || len(got[0]) != 3<<20+2 ||
		got[1] != "<line 2: longer than 64 MiB>" || got[2] != "3 c" ||
		got[3] != "<line 4: longer than 64 MiB>" {
		t.Errorf("%d rows, %v", len(got), err)
	}
}

func TestJSONLStopsAtErrors(t *testing.T) {
	broken := errors.New("broken disk")
	got, err := rowsOf(
		ReadObjects(io.MultiReader(strings.NewReader(`{"text": "one"}`+"\n"+`{"te`), failing{broken})),
		"text")
	if !errors.Is(err, broken) || len(got) != 1 {
		t.Errorf("%q, %v", got, err)
	}
}

// inParquet writes rows as a file of several row groups.
func inParquet[T any](t testing.TB, rows []T, options ...parquet.WriterOption) []byte {
	t.Helper()
	var out bytes.Buffer
	w := parquet.NewGenericWriter[T](&out, options...)
	for i := range rows {
		if _, err := w.Write(rows[i : i+1]); err != nil {
			t.Fatal(err)
		}
		if i%3 == 2 {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

type record struct {
	ID     int64             `parquet:"id"`
	Text   string            `parquet:"text"`
	Maybe  *string           `parquet:"maybe,optional"`
	Raw    []byte            `parquet:"raw"`
	List   []string          `parquet:"list,list"`
	Many   []string          `parquet:"many"`
	Group  struct{ A int32 } `parquet:"group"`
	Often  string            `parquet:"often,dict"`
	Number float64           `parquet:"number"`
}

func TestParquet(t *testing.T) {
	b := "b"
	rows := []record{{Text: "one", Raw: []byte("r1"), Often: "x"},
		{Text: "größer", Maybe: &b, Raw: []byte("\xff"), Often: "x"},
		{Text: "", Raw: []byte("a\x00"), Often: "y"}, {Text: "vier", Raw: []byte("r4"), Often: "x"}}
	for _, codec := range []parquet.WriterOption{parquet.Compression(&parquet.Uncompressed),
		parquet.Compression(&parquet.Snappy), parquet.Compression(&parquet.Zstd),
		parquet.Compression(&parquet.Gzip),
		parquet.Compression(&parquet.Brotli), parquet.DataPageVersion(1),
		parquet.DefaultEncodingFor(parquet.ByteArray, &parquet.Plain),
		parquet.DefaultEncodingFor(parquet.ByteArray, &parquet.DeltaByteArray)} {
		file := inParquet(t, rows, codec)
		for column, want := range map[string][]string{
			"text":  {"1 one", "2 größer", "3 ", "4 vier"},
			"often": {"1 x", "2 x", "3 y", "4 x"},
			"maybe": {`<row 1: field "maybe" is not a string>`, "2 b",
				`<row 3: field "maybe" is not a string>`, `<row 4: field "maybe" is not a string>`},
			"raw": {"1 r1", "<row 2: a text is not UTF-8>", "<row 3: the text has a zero byte>", "4 r4"},
		} {
			got, err := rowsOf(ReadParquet(bytes.NewReader(file), int64(len(file)), []string{column}),
				column)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%s: %v\n%s", column, err, diff)
			}
		}
		for _, column := range []string{"id", "number", "many", "list", "group"} {
			want := fmt.Sprintf("<row 1: field %q is not a string>", column)
			got, err := rowsOf(ReadParquet(bytes.NewReader(file), int64(len(file)), []string{column}),
				column)
			if err != nil || len(got) != 4 || got[0] != want {
				t.Errorf("%s: %q, %v, want %s", column, got, err, want)
			}
		}
	}
	stopped := 0
	file := inParquet(t, rows)
	for range ReadParquet(bytes.NewReader(file), int64(len(file)), []string{"text"}) {
		stopped++
		break
	}
	if stopped != 1 {
		t.Errorf("%d rows", stopped)
	}
}

// TestDamagedParquet checks that a truncated or changed file gives an error or rows, and no panic.
func TestDamagedParquet(t *testing.T) {
	testlevel.Long(t, "thousands of damaged files")
	file := inParquet(t, []record{{Text: strings.Repeat("one ", 50)}, {Text: "two"}, {Text: "three"},
		{Text: "four"}}, parquet.Compression(&parquet.Snappy))
	for n := range len(file) {
		var damaged *DamagedError
		if _, err := rowsOf(ReadParquet(bytes.NewReader(file[:n]), int64(n), []string{"text"}),
			"text"); !errors.As(err, &damaged) {
			t.Errorf("cut at %d of %d: %v", n, len(file), err)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	failed := 0
	for range 3000 {
		changed := bytes.Clone(file)
		changed[rng.IntN(len(changed))] = byte(rng.Uint32())
		if _, err := rowsOf(ReadParquet(bytes.NewReader(changed), int64(len(changed)), []string{"text"}),
			"text"); err != nil {
			failed++
		}
	}
	if failed < 300 {
		t.Errorf("only %d changes were noticed", failed)
	}
}

func FuzzJSONL(f *testing.F) {
	f.Add([]byte(`{"text": "a\n"}` + "\n[1]\n"))
	f.Add([]byte("\xef\xbb\xbf{\"a\":{\"text\":[]},\"text\":\"\xff\"}"))
	f.Fuzz(func(t *testing.T, in []byte) {
		last := int64(0)
		for row, err := range ReadObjects(bytes.NewReader(in)) {
			row.Extract("text")
			if err != nil || row.Number <= last || row.Err == nil &&
				(!utf8.Valid(row.Text) || bytes.IndexByte(row.Text, 0) >= 0) {
				t.Fatalf("row %d after %d, %v", row.Number, last, err)
			}
			last = row.Number
		}
	})
}

func FuzzDecompress(f *testing.F) {
	f.Add(pack(f, Gzip, []byte("text")), true)
	f.Add(pack(f, Zstd, []byte("text")), false)
	f.Fuzz(func(t *testing.T, in []byte, zipped bool) {
		kind := Zstd
		if zipped {
			kind = Gzip
		}
		var damaged *DamagedError
		if _, err := unpack(kind, in); err != nil && !errors.As(err, &damaged) {
			t.Fatal(err)
		}
	})
}
