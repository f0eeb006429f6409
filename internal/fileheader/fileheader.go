// Package fileheader reads and writes the header of token files and chat files: a block
// of fixed size that contains a version and a JSON text. Its place and size are fixed so
// that it can be written last, when counts and hashes are known, as a [Writer] does.
//
//	offset 0     8 bytes  magic
//	offset 8     uint32   format version
//	offset 12    uint32   length of the JSON text
//	offset 16             the JSON text, then zeros
//	offset 4096           the content of the file
//
// Numbers are little-endian. The formats define the content of the JSON text.
package fileheader

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cage-qat/cage/internal/plainjson"
)

// Size is the size of the block in bytes.
const Size = 4096

// TextOffset is the offset of the JSON text in the block.
const TextOffset = 16

// Format is a file format that has this header.
type Format struct {
	Magic          string // 8 bytes
	What           string // name of the format, such as "token file"
	Oldest, Newest uint32 // versions that this program reads
	TooLong        string // what to do about a text that does not fit, such as "shorten the name"
}

// Encode returns the header block.
func (f Format) Encode(version uint32, header any) ([]byte, error) {
	text, err := json.Marshal(header)
	if err != nil {
		return nil, err
	}
	if len(text) > Size-TextOffset {
		return nil, fmt.Errorf("header of %d bytes does not fit into %d: %s", len(text), Size-TextOffset, f.TooLong)
	}
	block := make([]byte, Size)
	copy(block, f.Magic)
	binary.LittleEndian.PutUint32(block[8:], version)
	binary.LittleEndian.PutUint32(block[12:], uint32(len(text)))
	copy(block[TextOffset:], text)
	return block, nil
}

// Decode decodes the block, the first bytes of a file of the given size, into header, and
// returns the version.
func (f Format) Decode(block []byte, size int64, header any) (version uint32, err error) {
	if len(block) < Size || size < Size {
		return 0, fmt.Errorf("%d bytes long, a header alone has %d", size, Size)
	}
	if string(block[:len(f.Magic)]) != f.Magic {
		return 0, fmt.Errorf("begins with %q, want %q: this is no %s", block[:len(f.Magic)], f.Magic, f.What)
	}
	if version = binary.LittleEndian.Uint32(block[8:]); version < f.Oldest || version > f.Newest {
		return 0, fmt.Errorf("format version %d, this program reads %s", version, f.versions())
	}
	length := binary.LittleEndian.Uint32(block[12:])
	if length > Size-TextOffset {
		return 0, fmt.Errorf("header text of %d bytes, at most %d fit", length, Size-TextOffset)
	}
	if err := plainjson.UnmarshalStrict(block[TextOffset:TextOffset+length], header); err != nil {
		return 0, fmt.Errorf("header text: %w", err)
	}
	if len(bytes.Trim(block[TextOffset+length:Size], "\x00")) > 0 {
		return 0, fmt.Errorf("the header text is not followed by zeros: the file was changed or damaged")
	}
	return version, nil
}

func (f Format) versions() string {
	if f.Oldest == f.Newest {
		return fmt.Sprintf("version %d", f.Newest)
	}
	return fmt.Sprintf("versions %d and %d", f.Oldest, f.Newest)
}

// CheckSHA256 returns an error if the value of a field is not a hash in lower-case
// hexadecimal.
func CheckSHA256(field, value string) error {
	if len(value) != 64 || strings.Trim(value, "0123456789abcdef") != "" {
		return fmt.Errorf("%s %q is not 64 hexadecimal digits", field, value)
	}
	return nil
}
