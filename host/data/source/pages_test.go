package source

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/encoding"
)

// TestManyPages: a file of many pages, larger than any buffer, is read whole.
func TestManyPages(t *testing.T) {
	var rows []record
	for i := range 3000 {
		rows = append(rows, record{Text: fmt.Sprint(i, strings.Repeat(fmt.Sprint(" text ", i*7919), 30))})
	}
	var out bytes.Buffer
	w := parquet.NewGenericWriter[record](&out, parquet.PageBufferSize(20000), parquet.Compression(&parquet.Snappy))
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := rowsOf(ReadParquet(bytes.NewReader(out.Bytes()), int64(out.Len()), "text"))
	if err != nil || len(got) != len(rows) || got[2999] != "3000 "+rows[2999].Text {
		t.Errorf("%d rows, %v", len(got), err)
	}
}

func FuzzParquet(f *testing.F) {
	f.Add(inParquet(f, []record{{Text: "one"}, {Text: "two"}}))
	for _, codec := range []compress.Codec{&parquet.Zstd, &parquet.Gzip, &parquet.Snappy, &parquet.Brotli} {
		f.Add(inParquet(f, []record{{Text: "one"}}, parquet.Compression(codec)))
	}
	for _, encoding := range []encoding.Encoding{&parquet.Plain, &parquet.DeltaByteArray, &parquet.RLEDictionary} {
		f.Add(inParquet(f, []record{{Text: "one"}, {Text: "once"}, {Text: "one"}}, parquet.DefaultEncodingFor(parquet.ByteArray, encoding), parquet.DataPageVersion(1)))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		for row, err := range ReadParquet(bytes.NewReader(in), int64(len(in)), "text") {
			if err == nil && row.Err == nil && checkText(row.Text) != "" {
				t.Fatalf("row %d is no text", row.Number)
			}
		}
	})
}
