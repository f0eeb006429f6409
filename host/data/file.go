package data

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/internal/regular"
)

// File is a token file opened for reading. It is safe for concurrent use.
//
// It reads through the operating system's page cache and holds no mapping: a
// file that shrinks while it is in use gives an error, not a crash.
type File struct {
	path    string
	file    *os.File
	header  Header
	buffers sync.Pool // of *[]byte
}

// Open opens the token file at path and checks its header against its length.
// A file that is no token file, or a damaged one, is a [*FormatError].
func Open(path string) (*File, error) {
	file, err := regular.Open(path)
	if wrong, ok := errors.AsType[*regular.Error](err); ok {
		return nil, &FormatError{path, wrong.Error()}
	}
	if err != nil {
		return nil, err
	}
	header, err := readHeader(file)
	if err != nil {
		file.Close()
		return nil, &FormatError{path, err.Error()}
	}
	f := &File{path: path, file: file, header: header}
	f.buffers.New = func() any { return new([]byte) }
	return f, nil
}

func readHeader(file *os.File) (Header, error) {
	stat, err := file.Stat()
	if err != nil {
		return Header{}, err
	}
	block := make([]byte, headerSize)
	if _, err := file.ReadAt(block, 0); err != nil && err != io.EOF {
		return Header{}, err
	}
	return parseHeader(block, stat.Size())
}

// Path returns the path that the file was opened with.
func (f *File) Path() string { return f.path }

// Header returns what the file says about itself.
func (f *File) Header() Header { return f.header }

// Len returns the number of tokens.
func (f *File) Len() int64 { return f.header.Tokens }

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// ReadTokens fills dst with the ids from position at onwards. A range that
// the file does not have is an error, as is an id outside the vocabulary.
func (f *File) ReadTokens(dst []int32, at int64) error {
	if at < 0 || at > f.Len() || int64(len(dst)) > f.Len()-at {
		return fmt.Errorf("token file %s: tokens %d to %d asked for, it has %d", f.path, at, at+int64(len(dst)), f.Len())
	}
	width := f.header.TokenBytes
	buffer := f.buffers.Get().(*[]byte)
	defer f.buffers.Put(buffer)
	if need := len(dst) * width; cap(*buffer) < need {
		*buffer = make([]byte, need)
	}
	raw := (*buffer)[:len(dst)*width]
	if _, err := f.file.ReadAt(raw, headerSize+at*int64(width)); err != nil {
		return fmt.Errorf("token file %s: tokens from %d: %w", f.path, at, err)
	}
	return f.decode(dst, raw, at)
}

// decode converts stored ids and checks them.
func (f *File) decode(dst []int32, raw []byte, at int64) error {
	vocab := uint32(f.header.Tokenizer.VocabSize)
	for i := range dst {
		var id uint32
		if f.header.TokenBytes == 2 {
			id = uint32(binary.LittleEndian.Uint16(raw[2*i:]))
		} else {
			id = binary.LittleEndian.Uint32(raw[4*i:])
		}
		if id >= vocab {
			return fmt.Errorf("token file %s: at position %d: %w", f.path, at+int64(i),
				&tokenizer.RangeError{ID: int64(id), VocabSize: int(vocab)})
		}
		dst[i] = int32(id)
	}
	return nil
}

// Verify reads the whole file and compares it with its hash and its
// vocabulary; it stops when ctx ends. A file that was changed or damaged is a
// [*FormatError], or a [*tokenizer.RangeError] where that shows in an id.
func (f *File) Verify(ctx context.Context) error { return f.VerifyPaced(ctx, nil) }

// VerifyPaced is Verify for a caller that has other work to do on the same processors.
// After each part of the file, about a megabyte, it calls pause with the time that the
// part took; nil means without pauses.
func (f *File) VerifyPaced(ctx context.Context, pause func(worked time.Duration)) error {
	const chunk = 1 << 18 // tokens
	sum := sha256.New()
	raw := make([]byte, chunk*f.header.TokenBytes)
	for at := int64(0); at < f.Len(); at += chunk {
		if err := ctx.Err(); err != nil {
			return err
		}
		begin := time.Now()
		part := raw[:int(min(chunk, f.Len()-at))*f.header.TokenBytes]
		if _, err := f.file.ReadAt(part, headerSize+at*int64(f.header.TokenBytes)); err != nil {
			return fmt.Errorf("token file %s: tokens from %d: %w", f.path, at, err)
		}
		sum.Write(part)
		if f.largest(part) >= uint32(f.header.Tokenizer.VocabSize) {
			return f.decode(make([]int32, len(part)/f.header.TokenBytes), part, at) // says where
		}
		if pause != nil {
			pause(time.Since(begin))
		}
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != f.header.SHA256 {
		return &FormatError{f.path, fmt.Sprintf("the tokens have the hash %s, the header says %s: the file was changed or damaged", got, f.header.SHA256)}
	}
	return nil
}

// largest is the largest of stored ids.
func (f *File) largest(raw []byte) uint32 {
	var found uint32
	if f.header.TokenBytes == 2 {
		for ; len(raw) >= 2; raw = raw[2:] {
			found = max(found, uint32(binary.LittleEndian.Uint16(raw)))
		}
		return found
	}
	for ; len(raw) >= 4; raw = raw[4:] {
		found = max(found, binary.LittleEndian.Uint32(raw))
	}
	return found
}
