package source

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// forged returns a Parquet file of one page, whose header is modified by change.
func forged(
	t *testing.T, codec format.CompressionCodec, body []byte, change func(*format.PageHeader),
) []byte {
	t.Helper()
	return forgedRows(t, codec, body, 0, change)
}

// forgedRows is like forged; its row group states this number of rows, or for 0 that of the page.
func forgedRows(
	t *testing.T, codec format.CompressionCodec, body []byte, rows int64,
	change func(*format.PageHeader),
) []byte {
	t.Helper()
	type row struct {
		Text *string `parquet:"text,optional"`
	}
	text := "a"
	genuine := inParquet(t, []row{{&text}, {nil}})
	file, err := parquet.OpenFile(bytes.NewReader(genuine), int64(len(genuine)))
	if err != nil {
		t.Fatal(err)
	}
	header := &format.PageHeader{Type: format.DataPage, CompressedPageSize: int32(len(body)),
		UncompressedPageSize: 100}
	header.DataPageHeader.Valid = true
	header.DataPageHeader.V = format.DataPageHeader{NumValues: 8, Encoding: format.Plain,
		DefinitionLevelEncoding: format.RLE, RepetitionLevelEncoding: format.RLE}
	change(header)
	marshal := func(v any) []byte {
		out, err := thrift.Marshal(new(thrift.CompactProtocol), v)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	out := slices.Concat([]byte("PAR1"), marshal(header), body)
	meta := *file.Metadata()
	group := &meta.RowGroups[0]
	group.NumRows = cmp.Or(rows, int64(header.DataPageHeader.V.NumValues))
	column := &group.Columns[0].MetaData
	column.Codec, column.DataPageOffset, column.DictionaryPageOffset = codec, 4, 0
	column.TotalCompressedSize, column.NumValues = int64(len(out)-4), group.NumRows
	footer := marshal(&meta)
	return append(binary.LittleEndian.AppendUint32(append(out, footer...), uint32(len(footer))),
		"PAR1"...)
}

// levels prepends definition levels to values: a run of eight ones.
func levels(data ...byte) []byte { return append([]byte{2, 0, 0, 0, 16, 1}, data...) }

// TestForgedPages checks that a page is rejected, before memory is allocated for it, if its header
// states more than the file can hold, or if the library would decode it wrongly.
func TestForgedPages(t *testing.T) {
	encoded := func(e format.Encoding) func(*format.PageHeader) {
		return func(h *format.PageHeader) { h.DataPageHeader.V.Encoding = e }
	}
	same := func(*format.PageHeader) {}
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"lz4": {forged(t, format.Lz4Raw, []byte{0xff, 0xff, 0xff, 0xff}, same),
			"LZ4_RAW is not supported"},
		"more": {forgedRows(t, 0, levels(make([]byte, 32)...), 4, same),
			"pages have at least 8 values, want the 4 of the row group"},
		"fewer": {forgedRows(t, 0, levels(make([]byte, 32)...), 13, same),
			"row group 0 has 8 rows, want the 13 that it states"},
		"truths": {forged(t, 0, levels(4, 0, 0, 0, 6, 1, 10, 0), encoded(format.RLE)),
			"booleans in RLE encoding"},
		"values": {forged(t, 0, levels(),
			func(h *format.PageHeader) {
				h.DataPageHeader.V.NumValues = math.MaxInt32
			}), "a page takes 32768 MiB in memory"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := rowsOf(ReadParquet(bytes.NewReader(c.file), int64(len(c.file)),
				[]string{"text"}), "text")
			runtime.ReadMemStats(&after)
			if _, damaged := errors.AsType[*DamagedError](err); !damaged ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if taken := after.TotalAlloc - before.TotalAlloc; taken > 32<<20 {
				t.Errorf("%d MiB of memory for a file of %d bytes", taken>>20, len(c.file))
			}
		})
	}
}

// TestManyPages checks that a file of many pages, larger than any buffer, is read completely.
func TestManyPages(t *testing.T) {
	var rows []record
	for i := range 3000 {
		rows = append(rows, record{Text: fmt.Sprint(i, strings.Repeat(fmt.Sprint(" text ", i*7919), 30))})
	}
	var out bytes.Buffer
	w := parquet.NewGenericWriter[record](&out, parquet.PageBufferSize(20000),
		parquet.Compression(&parquet.Snappy))
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := rowsOf(ReadParquet(bytes.NewReader(out.Bytes()), int64(out.Len()),
		[]string{"text"}), "text")
	if err != nil || len(got) != len(rows) || got[2999] != "3000 "+rows[2999].Text {
		t.Errorf("%d rows, %v", len(got), err)
	}
}
