package source

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go/encoding/delta"
	"github.com/parquet-go/parquet-go/format"
)

// plainDictionary is what old writers call the encoding of a dictionary and of its pages.
const plainDictionary format.Encoding = 2

// runSlack is by how many values the last run of a page may be too long: that of a
// bit-packed run is filled up.
const runSlack = 504

// checkValues checks that data have no more values than the page says, and returns how
// many bytes they become where those are more than the data have.
func checkValues(encoding format.Encoding, data []byte, values int64) (int64, error) {
	switch encoding {
	case plainDictionary, format.RLEDictionary:
		if len(data) == 0 {
			return 0, nil
		}
		return 0, checkRuns(data[1:], int(data[0]), values)
	case format.RLE: // truth values, after their length
		if len(data) < 4 {
			return 0, io.ErrUnexpectedEOF
		}
		if err := checkRuns(data[4:], 1, values); err != nil {
			return 0, err
		}
		return 0, checkTruths(data[4:])
	case format.DeltaBinaryPacked, format.DeltaLengthByteArray:
		_, err := skipDelta(data, values)
		return 0, err
	case format.DeltaByteArray:
		return checkPrefixes(data, values)
	}
	return 0, nil
}

// checkRuns checks runs of the mixed encoding RLE: a number that is repeated, or numbers
// of width bits.
func checkRuns(data []byte, width int, values int64) error {
	if width > 32 {
		return fmt.Errorf("numbers of %d bits in a dictionary's page", width)
	}
	most, total := uint64(values)+runSlack, uint64(0)
	for len(data) > 0 {
		head, n := binary.Uvarint(data)
		if n <= 0 {
			return io.ErrUnexpectedEOF
		}
		data = data[n:]
		count, size := head>>1, uint64(width+7)/8
		if head&1 != 0 { // groups of eight numbers
			size = min(count, uint64(len(data))+1) * uint64(width)
			count = min(count, most+1) * 8
		}
		if total += min(count, most+1); total > most {
			return fmt.Errorf("a page with more than the %d values that it says", values)
		}
		data = data[min(size, uint64(len(data))):]
	}
	return nil
}

// checkTruths refuses runs of truth values that the library would put at wrong places: it
// begins each run at a whole byte.
func checkTruths(data []byte) error {
	whole := true
	for len(data) > 0 {
		head, n := binary.Uvarint(data)
		if n <= 0 {
			return io.ErrUnexpectedEOF
		}
		if !whole {
			return errors.New("truth values in the encoding RLE, in runs that are not multiples of eight: they cannot be read; write the file with data pages of version 1")
		}
		size := uint64(1)
		if data = data[n:]; head&1 != 0 {
			size = head >> 1
		} else {
			whole = head>>1%8 == 0
		}
		data = data[min(size, uint64(len(data))):]
	}
	return nil
}

// maxBlock bounds a block of numbers in a delta encoding. The library has the same limit.
const maxBlock = 1 << 16

var errDelta = errors.New("damaged numbers in a delta encoding")

// skipDelta passes over numbers in the encoding DELTA_BINARY_PACKED.
func skipDelta(data []byte, values int64) (rest []byte, err error) {
	var head [3]uint64 // the size of a block, its parts, and how many numbers there are
	for i := range head {
		if head[i], data, err = cutUvarint(data); err != nil {
			return nil, err
		}
	}
	if _, data, err = cutUvarint(data); err != nil { // the first number
		return nil, err
	}
	block, parts, count := head[0], head[1], head[2]
	if count > uint64(values) {
		return nil, fmt.Errorf("%d numbers in a page that says it has %d values", count, values)
	}
	if parts == 0 || block == 0 || block > maxBlock || parts > block || block/parts%32 != 0 {
		return nil, errDelta
	}
	for count = max(count, 1) - 1; count > 0; {
		if _, data, err = cutUvarint(data); err != nil { // the least difference
			return nil, err
		}
		if uint64(len(data)) < parts {
			return nil, errDelta
		}
		var widths []byte
		widths, data = data[:parts], data[parts:]
		for _, width := range widths {
			if count == 0 {
				break
			}
			count -= min(count, block/parts)
			data = data[min(block/parts*uint64(width)/8, uint64(len(data))):]
		}
	}
	return data, nil
}

func cutUvarint(data []byte) (u uint64, rest []byte, err error) {
	u, n := binary.Uvarint(data)
	if n <= 0 {
		return 0, nil, errDelta
	}
	return u, data[n:], nil
}

// checkPrefixes checks texts in the encoding DELTA_BYTE_ARRAY, each of which begins with
// a number of bytes of the one before, and returns how many bytes they are in all.
func checkPrefixes(data []byte, values int64) (int64, error) {
	total, all := int64(0), data
	for range 2 { // the lengths of the prefixes, and of what follows them
		rest, err := skipDelta(all, values)
		if err != nil {
			return 0, err
		}
		lengths, err := new(delta.BinaryPackedEncoding).DecodeInt32(nil, all)
		if err != nil {
			return 0, err
		}
		for _, n := range lengths {
			if total += int64(n); n < 0 || total > maxPage {
				return 0, fmt.Errorf("a page of texts of more than %d MiB, at most that are read", maxPage>>20)
			}
		}
		all = rest
	}
	return total, nil
}
