package source

import (
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// maxPage bounds a page of Parquet, decompressed. Writers make pages of about a megabyte.
const maxPage = 256 << 20

// valueCost is the memory that a value takes beside its bytes, about.
const valueCost = 16

// budget bounds what is made of a file: bombFree bytes, or bombRatio times the file's
// size, whichever is more.
type budget struct {
	size  int64 // of the file
	spent int64
}

func (b *budget) spend(n int64) error {
	b.spent += n
	if b.spent > bombFree && b.spent/bombRatio > b.size {
		return fmt.Errorf("%d MiB so far, from a file of %d KiB: more than %d times as much, as in a decompression bomb; if it is text all the same, write it as JSONL",
			b.spent>>20, b.size>>10, bombRatio)
	}
	return nil
}

// leaf is a column of values.
type leaf struct {
	index                  int
	repetition, definition int   // the largest levels
	cost                   int64 // memory for a value
}

func newLeaf(index, repetition, definition int, kind parquet.Type) leaf {
	l := leaf{index, repetition, definition, valueCost}
	if kind.Kind() == parquet.FixedLenByteArray {
		l.cost = max(l.cost, int64(kind.Length()))
	}
	return l
}

// pages checks pages before the library reads them: it takes memory for the sizes and
// counts that they claim, and decompresses without a limit.
type pages struct {
	file   *parquet.File
	r      io.ReaderAt
	budget budget
	zstd   *zstd.Decoder
	packed []byte // a page as it is in the file
	plain  []byte // a page, decompressed
}

func (p *pages) close() {
	if p.zstd != nil {
		p.zstd.Close()
	}
}

// group checks the pages of a column in a row group.
func (p *pages) group(i int, column leaf) error {
	chunks := p.file.Metadata().RowGroups[i].Columns
	if column.index >= len(chunks) {
		return damagedParquet(fmt.Errorf("row group %d has %d columns", i, len(chunks)))
	}
	meta, size := &chunks[column.index].MetaData, p.budget.size
	begin := meta.DataPageOffset
	if at := meta.DictionaryPageOffset; at != 0 {
		begin = at
	}
	if begin < 0 || meta.TotalCompressedSize < 0 || begin > size || meta.TotalCompressedSize > size-begin {
		return damagedParquet(fmt.Errorf("row group %d begins at %d and has %d bytes, in a file of %d", i, begin, meta.TotalCompressedSize, size))
	}
	if err := p.chunk(io.NewSectionReader(p.r, begin, meta.TotalCompressedSize), meta, column); err != nil {
		return damagedParquet(fmt.Errorf("row group %d: %w", i, err))
	}
	return nil
}

// chunk checks the pages of a column in a row group, which are all that is in data.
func (p *pages) chunk(data *io.SectionReader, meta *format.ColumnMetaData, column leaf) error {
	values := int64(0)
	for at := int64(0); at < data.Size(); {
		header, length, err := pageHeader(data, at)
		if err != nil {
			return err
		}
		at += length
		packed, plain := int64(header.CompressedPageSize), int64(header.UncompressedPageSize)
		switch {
		case packed < 0 || packed > data.Size()-at:
			return fmt.Errorf("a page of %d bytes where %d are left", packed, data.Size()-at)
		case plain < 0 || packed > maxPage || plain > maxPage:
			return fmt.Errorf("a page of %d MiB, at most %d are read", max(packed, plain)>>20, maxPage>>20)
		}
		page, err := newPage(header, meta.Codec, column)
		if err != nil {
			return err
		}
		if page.kind != format.DictionaryPage {
			values += page.values
		}
		if values > meta.NumValues {
			return fmt.Errorf("pages with %d values or more, where the row group has %d", values, meta.NumValues)
		}
		if err := p.budget.spend(plain + page.values*column.cost); err != nil {
			return err
		}
		p.packed = slices.Grow(p.packed[:0], int(packed))[:packed]
		if _, err := io.ReadFull(io.NewSectionReader(data, at, packed), p.packed); err != nil {
			return err
		}
		if err := p.page(page, p.packed); err != nil {
			return err
		}
		at += packed
	}
	return nil
}

// maxHeader bounds the header of a page. Large ones hold a page's least and greatest text.
const maxHeader = 16 << 20

// pageHeader reads the header of the page at a place, and returns its length as well. It
// looks through the bytes first: the library goes through every entry that a list claims.
func pageHeader(data *io.SectionReader, at int64) (*format.PageHeader, int64, error) {
	for window := int64(512); ; window *= 16 {
		most := min(maxHeader, data.Size()-at)
		raw := make([]byte, min(window, most))
		if _, err := data.ReadAt(raw, at); err != nil && err != io.EOF {
			return nil, 0, err
		}
		c := compact{raw}
		if err := c.fields(0); err != nil {
			if window < most { // it may be longer
				continue
			}
			return nil, 0, fmt.Errorf("the header of a page: %w", err)
		}
		raw = raw[:len(raw)-len(c.rest)]
		header := new(format.PageHeader)
		err := thrift.Unmarshal(new(thrift.CompactProtocol), raw, header)
		return header, int64(len(raw)), err
	}
}
