package source

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
)

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
