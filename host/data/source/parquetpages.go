package source

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// maxPage bounds the memory for a page of Parquet. Writers usually make pages of about a megabyte.
const maxPage = 256 << 20

// valueCost is the approximate memory of a value in addition to its bytes.
const valueCost = 16

func checkMagic(r io.ReaderAt, size int64) error {
	var tail [8]byte
	if size < 12 {
		return fmt.Errorf("%d bytes long: the file is empty or truncated", size)
	}
	if _, err := r.ReadAt(tail[:], size-8); err != nil && err != io.EOF {
		return err
	}
	if string(tail[4:]) != "PAR1" {
		return fmt.Errorf("it does not end with PAR1: the file is truncated")
	}
	if length := int64(binary.LittleEndian.Uint32(tail[:])); length > size-12 {
		return fmt.Errorf("footer of %d bytes does not fit into the file of %d bytes", length, size)
	}
	return nil
}

// compressions lists the codecs that the library decompresses correctly. For LZ4_RAW it returns
// wrong bytes.
var compressions = []format.CompressionCodec{
	format.Uncompressed, format.Snappy, format.Gzip, format.Brotli, format.Zstd,
}

// checkPages checks the page headers of a column in a row group, before the library allocates
// memory for the pages. A page that is larger than its header states is not detected.
func (p *parquetFile) checkPages(file *parquet.File, group int, leaf parquet.LeafColumn) error {
	chunks := file.Metadata().RowGroups[group].Columns
	if leaf.ColumnIndex >= len(chunks) {
		return fmt.Errorf("it has %d columns", len(chunks))
	}
	meta := &chunks[leaf.ColumnIndex].MetaData
	if !slices.Contains(compressions, meta.Codec) {
		return fmt.Errorf("the compression %s is not supported, want none, SNAPPY, GZIP, BROTLI or ZSTD",
			meta.Codec)
	}
	begin, length := meta.DataPageOffset, meta.TotalCompressedSize
	if at := meta.DictionaryPageOffset; at != 0 {
		begin = at
	}
	if begin < 0 || length < 0 || begin > p.size || length > p.size-begin {
		return fmt.Errorf("column chunk at %d of %d bytes exceeds the file of %d", begin, length, p.size)
	}
	cost := int64(valueCost)
	if kind := leaf.Node.Type(); kind.Kind() == parquet.FixedLenByteArray {
		cost = max(cost, int64(kind.Length()))
	}
	in := bufio.NewReader(io.NewSectionReader(p.r, begin, length))
	decoder := thrift.NewDecoder(new(thrift.CompactProtocol).NewReader(in))
	values := int64(0)
	for {
		if _, err := in.Peek(1); err == io.EOF {
			return nil
		}
		header := new(format.PageHeader)
		if err := decoder.Decode(header); err != nil {
			return fmt.Errorf("the header of a page: %w", err)
		}
		packed, plain := int64(header.CompressedPageSize), int64(header.UncompressedPageSize)
		n, encoding, err := pageValues(header)
		if err != nil {
			return err
		}
		if packed < 0 || plain < 0 || packed > maxPage || plain+n*cost > maxPage {
			return fmt.Errorf("a page takes %d MiB in memory; the limit is %d MiB",
				max(packed, plain+n*cost)>>20, maxPage>>20)
		}
		if header.Type != format.DictionaryPage {
			values += n
		}
		if n < 0 || values > meta.NumValues {
			return fmt.Errorf("pages have at least %d values, want the %d of the row group",
				values, meta.NumValues)
		}
		if encoding == format.RLE { // the library aligns each run to a byte
			return errors.New("booleans in RLE encoding are not supported: " +
				"write the file with data pages of version 1")
		}
		if _, err := in.Discard(int(packed)); err != nil {
			return err
		}
	}
}

// pageValues returns the number of values, including nulls, and the encoding in a page header.
func pageValues(h *format.PageHeader) (n int64, encoding format.Encoding, err error) {
	switch {
	case h.Type == format.DictionaryPage && h.DictionaryPageHeader.Valid:
		return int64(h.DictionaryPageHeader.V.NumValues), format.Plain, nil
	case h.Type == format.DataPage && h.DataPageHeader.Valid:
		return int64(h.DataPageHeader.V.NumValues), h.DataPageHeader.V.Encoding, nil
	case h.Type == format.DataPageV2 && h.DataPageHeaderV2.Valid:
		return int64(h.DataPageHeaderV2.V.NumValues), h.DataPageHeaderV2.V.Encoding, nil
	}
	return 0, 0, fmt.Errorf("page type %s is not supported, or its header is missing", h.Type)
}
