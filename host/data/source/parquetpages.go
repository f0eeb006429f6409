package source

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
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

// page is what the header of a page says of it.
type page struct {
	kind     format.PageType
	values   int64 // with nulls
	plain    int64 // bytes, decompressed
	encoding format.Encoding
	codec    format.CompressionCodec
	column   leaf

	// Levels come first: in version 1 each kind has its length before it, in version 2 the
	// lengths are in the header and the levels are not compressed.
	repetition, definition format.Encoding
	lengths                [2]int64
}

func newPage(header *format.PageHeader, codec format.CompressionCodec, column leaf) (page, error) {
	p := page{kind: header.Type, plain: int64(header.UncompressedPageSize), codec: codec, column: column}
	switch {
	case p.kind == format.DictionaryPage && header.DictionaryPageHeader.Valid:
		h := &header.DictionaryPageHeader.V
		p.values, p.encoding = int64(h.NumValues), h.Encoding
		if p.encoding != format.Plain && p.encoding != plainDictionary {
			return p, fmt.Errorf("a dictionary in the encoding %s, want %s", p.encoding, format.Plain)
		}
		p.encoding = format.Plain
	case p.kind == format.DataPage && header.DataPageHeader.Valid:
		h := &header.DataPageHeader.V
		p.values, p.encoding = int64(h.NumValues), h.Encoding
		p.repetition, p.definition = h.RepetitionLevelEncoding, h.DefinitionLevelEncoding
	case p.kind == format.DataPageV2 && header.DataPageHeaderV2.Valid:
		h := &header.DataPageHeaderV2.V
		p.values, p.encoding = int64(h.NumValues), h.Encoding
		p.repetition, p.definition = format.RLE, format.RLE
		p.lengths = [2]int64{int64(h.RepetitionLevelsByteLength), int64(h.DefinitionLevelsByteLength)}
		if h.IsCompressed.Valid && !h.IsCompressed.V {
			p.codec = format.Uncompressed
		}
	default:
		return p, fmt.Errorf("a page of the kind %s, or without its header", p.kind)
	}
	if p.values < 0 {
		return p, fmt.Errorf("a page of %d values", p.values)
	}
	return p, nil
}

// page checks that a page gives as many bytes and values as its header says, or fewer.
func (p *pages) page(h page, data []byte) error {
	v2 := h.kind == format.DataPageV2
	var levels [2][]byte
	if v2 {
		for i, n := range h.lengths {
			if n < 0 || n > int64(len(data)) {
				return fmt.Errorf("levels of %d bytes in a page where %d are left", n, len(data))
			}
			levels[i], data = data[:n], data[n:]
		}
	}
	data, err := p.decompress(h.codec, data, h.plain)
	if err != nil {
		return err
	}
	if h.kind == format.DictionaryPage {
		return nil
	}
	for i, largest := range [2]int{h.column.repetition, h.column.definition} {
		if largest == 0 {
			continue
		}
		if !v2 {
			if levels[i], data, err = prefixed(data); err != nil {
				return err
			}
		}
		if [2]format.Encoding{h.repetition, h.definition}[i] == format.RLE { // others take at least a bit for each value
			if err := checkRuns(levels[i], bits.Len(uint(largest)), h.values); err != nil {
				return err
			}
		}
	}
	size, err := checkValues(h.encoding, data, h.values)
	if err != nil {
		return err
	}
	return p.budget.spend(size)
}

// prefixed splits off the bytes whose number comes before them.
func prefixed(data []byte) (first, rest []byte, err error) {
	if len(data) < 4 {
		return nil, nil, io.ErrUnexpectedEOF
	}
	n := int64(binary.LittleEndian.Uint32(data))
	if data = data[4:]; n > int64(len(data)) {
		return nil, nil, fmt.Errorf("levels of %d bytes in a page where %d are left", n, len(data))
	}
	return data[:n], data[n:], nil
}

var errLarger = errors.New("a page that is larger, decompressed, than it says")

// decompress returns the bytes of a page, at most as many as it claims.
func (p *pages) decompress(codec format.CompressionCodec, packed []byte, most int64) ([]byte, error) {
	if codec == format.Uncompressed {
		return packed, nil
	}
	if len(packed) == 0 {
		return nil, errors.New("a compressed page without bytes")
	}
	var err error
	switch codec {
	case format.Snappy:
		if n, err := snappy.DecodedLen(packed); err != nil {
			return nil, err
		} else if int64(n) > most {
			return nil, errLarger
		}
		p.plain, err = snappy.Decode(p.plain[:cap(p.plain)], packed)
	case format.Zstd:
		if p.zstd == nil {
			if p.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxPage)); err != nil {
				return nil, err
			}
		}
		p.plain, err = p.zstd.DecodeAll(packed, p.plain[:0])
	case format.Gzip:
		var r *gzip.Reader
		if r, err = gzip.NewReader(bytes.NewReader(packed)); err == nil {
			err = p.readMost(r, most)
		}
	case format.Brotli:
		err = p.readMost(brotli.NewReader(bytes.NewReader(packed)), most)
	default: // with LZ4_RAW, the library gives back bytes that are not the page's
		return nil, fmt.Errorf("the compression %s cannot be read, want none, SNAPPY, GZIP, BROTLI or ZSTD", codec)
	}
	if err == nil && int64(len(p.plain)) > most {
		err = errLarger
	}
	return p.plain, err
}

// readMost reads one byte more than most, at most.
func (p *pages) readMost(r io.Reader, most int64) error {
	out := bytes.NewBuffer(p.plain[:0])
	_, err := out.ReadFrom(io.LimitReader(r, most+1))
	p.plain = out.Bytes()
	return err
}
