package scaling

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	want := []Point{
		{Group: Group{"BF16", 16}, N: 3e7, D: 3e9, Loss: 3.2},
		{Group: Group{"CAGE, HT", 4}, N: 3e7, D: 3e9, Loss: math.Log(26)},
	}
	csv := "# a comment\n Method,bits,N,d,loss\nBF16,16,3e7,3000000000,3.2\n"
	got, err := ParseCSV("a.csv", []byte(csv))
	if err != nil {
		t.Fatal(err)
	}
	want[0].Source = "a.csv:3"
	if diff := cmp.Diff(want[:1], got); diff != "" {
		t.Error(diff)
	}
	got, err = ParseCSV("a.csv", []byte("ppl,method,bits,n,d\n26,\"CAGE, HT\",4,3e7,3e9\n"))
	if err != nil {
		t.Fatal(err)
	}
	want[1].Source = "a.csv:2"
	if diff := cmp.Diff(want[1:], got); diff != "" {
		t.Error(diff)
	}
}

func TestParseSaysWhatIsWrong(t *testing.T) {
	const heading = "n,d,method,bits,loss\n"
	csv := map[string]string{
		"": "f: no lines; the first must name the columns: want n, " +
			"d, method, bits, and loss or ppl",
		heading: "f: no points below the heading",
		"n,d,method,bit,loss\n1,1,a,4,1\n": "f:1: unknown column \"bit\"; want n, d, method, bits, " +
			"and loss or ppl",
		"n,d,n,method,bits\n": "f:1: column n twice",
		"n,d,method,bits,loss,ppl\n": "f:1: want one of the columns loss (nats per token) and " +
			"ppl (its exponential)",
		heading + "1,2,a,4\n":    "f:2: 4 fields, the heading has 5",
		heading + "10,x,a,4,3\n": "f:2: d is \"x\"; want a number",
		heading + "# c\n\n1e6,1e8,a,4,NaN\n": "f:4: loss is NaN; want the validation loss in nats per " +
			"token, above 0",
		heading + "-1,1,a,4,1\n": "f:2: n is -1; want the number of parameters outside the " +
			"embeddings, above 0",
		heading + "1,0,a,4,1\n": "f:2: d is 0; want the number of tokens seen, above 0",
		heading + "1,1,a,65,1\n": "f:2: bits is 65; want bits per weight, above 0 and at " +
			"most 64",
		heading + "1,1,,4,1\n":     "f:2: the method has no name",
		heading + "1e40,1,a,4,1\n": "f:2: n and d must be 1 or more, and nothing above 1e+30",
		heading + "1,1,\"a,4,1\n": "f:2: not valid CSV: extraneous or missing \" in " +
			"quoted-field",
	}
	for text, want := range csv {
		if _, err := ParseCSV("f", []byte(text)); err == nil || err.Error() != want {
			t.Errorf("%q: error\n%v\nwant\n%s", text, err, want)
		}
	}
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "points.CSV")
	if err := os.WriteFile(path, []byte("\ufeffn,d,method,bits,loss\r\n1,1,a,4,1\r\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	if points, err := ReadFile(path); err != nil || len(points) != 1 {
		t.Errorf("%v, %v", points, err)
	}
	path = filepath.Join(dir, "none.csv")
	if _, err := ReadFile(path); !errors.Is(err, fs.ErrNotExist) ||
		!strings.Contains(err.Error(), path) {
		t.Error(err)
	}
}

// fuzzParser checks that for any text, parse returns valid points or an error.
func fuzzParser(f *testing.F, parse func(string, []byte) ([]Point, error)) {
	f.Fuzz(func(t *testing.T, text []byte) {
		points, err := parse("f", text)
		if (err == nil) == (len(points) == 0) {
			t.Fatalf("%d points and error %v", len(points), err)
		}
		for _, p := range points {
			if wrong := p.check(); wrong != "" {
				t.Fatalf("%+v: %s", p, wrong)
			}
		}
		if err != nil && !strings.HasPrefix(err.Error(), "f:") {
			t.Fatal(err)
		}
	})
}

func FuzzParseCSV(f *testing.F) {
	for _, seed := range []string{"", "n,d,method,bits,loss\n1,1,a,4,1\n",
		"ppl,method,bits,n,d\r\n26,\"a, b\",4,3e7,3e9", "#\nn,n\n\"",
		"n,d,method,bits,loss\n1,1,a,4,1e999\n"} {
		f.Add([]byte(seed))
	}
	fuzzParser(f, ParseCSV)
}
