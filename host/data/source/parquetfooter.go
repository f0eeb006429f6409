package source

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// checkFooter makes sure that the file is as long as its last bytes say, and that no list
// in its footer claims more entries than the footer has bytes, before memory is taken for
// what they say.
func checkFooter(r io.ReaderAt, size int64) error {
	var tail [8]byte
	if size < 12 {
		return fmt.Errorf("%d bytes long: the file is empty or truncated", size)
	}
	if _, err := r.ReadAt(tail[:], size-8); err != nil && err != io.EOF {
		return err
	}
	if string(tail[4:]) != "PAR1" {
		return fmt.Errorf("it does not end with the mark PAR1: the file is truncated")
	}
	length := int64(binary.LittleEndian.Uint32(tail[:]))
	if length > size-12 {
		return fmt.Errorf("a footer of %d bytes in a file of %d", length, size)
	}
	footer := make([]byte, length)
	if _, err := io.ReadFull(io.NewSectionReader(r, size-8-length, length), footer); err != nil {
		return err
	}
	c := compact{footer}
	if err := c.fields(0); err != nil {
		return fmt.Errorf("the footer: %w", err)
	}
	return nil
}

// compact is what remains of bytes in Thrift's compact protocol. Its methods pass over
// values without taking memory for them.
type compact struct{ rest []byte }

// maxDepth bounds how deep structures may lie in each other; a footer has about eight.
const maxDepth = 32

var errCompact = errors.New("it ends too early, or a length in it is too large")

func (c *compact) skip(n uint64) error {
	if n > uint64(len(c.rest)) {
		return errCompact
	}
	c.rest = c.rest[n:]
	return nil
}

func (c *compact) byte() (byte, error) {
	if len(c.rest) == 0 {
		return 0, errCompact
	}
	b := c.rest[0]
	c.rest = c.rest[1:]
	return b, nil
}

func (c *compact) uvarint() (uint64, error) {
	u, n := binary.Uvarint(c.rest)
	if n <= 0 {
		return 0, errCompact
	}
	c.rest = c.rest[n:]
	return u, nil
}

// fields passes over the fields of a structure.
func (c *compact) fields(depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("more than %d structures in each other", maxDepth)
	}
	for {
		head, err := c.byte()
		if err != nil || head == 0 {
			return err
		}
		if head>>4 == 0 { // the number of the field follows
			if _, err := c.uvarint(); err != nil {
				return err
			}
		}
		if kind := head & 15; kind == 1 || kind == 2 { // true and false: there is no value
			continue
		} else if err := c.value(kind, depth); err != nil {
			return err
		}
	}
}

// value passes over a value of a field or an entry of a list.
func (c *compact) value(kind byte, depth int) error {
	switch kind {
	case 1, 2, 3: // a byte
		return c.skip(1)
	case 4, 5, 6: // an integer
		_, err := c.uvarint()
		return err
	case 7: // a double
		return c.skip(8)
	case 8: // a text
		n, err := c.uvarint()
		if err != nil {
			return err
		}
		return c.skip(n)
	case 9, 10:
		return c.list(depth + 1)
	case 12:
		return c.fields(depth + 1)
	}
	return fmt.Errorf("a value of the unknown kind %d", kind)
}

// list passes over a list. Every entry has at least one byte.
func (c *compact) list(depth int) error {
	head, err := c.byte()
	if err != nil {
		return err
	}
	n := uint64(head >> 4)
	if n == 15 {
		if n, err = c.uvarint(); err != nil {
			return err
		}
	}
	if n > uint64(len(c.rest)) || depth > maxDepth {
		return fmt.Errorf("a list of %d entries where %d bytes are left, %d deep", n, len(c.rest), depth)
	}
	for range n {
		if err := c.value(head&15, depth); err != nil {
			return err
		}
	}
	return nil
}
