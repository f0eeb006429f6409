package data

import (
	"bytes"
	"io"
	"unicode/utf8"
)

// scanner goes through a file in chunks. Documents that are nothing but white
// space are left out.
type scanner struct {
	file      int    // the number of the text file that the documents lie in
	base      int64  // where in that file the text begins
	separator []byte // empty: the file is one document
	documents []document
	begin     []byte // the first bytes of the file

	position int64 // of the chunk in the file
	start    int64 // of the current document
	skip     int   // bytes at the front of the chunk that belong to a separator
	visible  bool  // the current document has more than white space
}

func (s *scanner) run(r io.Reader, chunk int) (Reason, error) {
	// What is held back at the end of a chunk: a character, or a separator, may
	// be cut there.
	hold := max(len(s.separator)-1, utf8.UTFMax-1)
	buf := make([]byte, chunk+hold+utf8.UTFMax)
	kept := 0
	for {
		n, err := io.ReadFull(r, buf[kept:])
		last := err == io.EOF || err == io.ErrUnexpectedEOF
		if err != nil && !last {
			return isText, err
		}
		text := buf[:kept+n]
		if len(s.begin) == 0 {
			s.begin = append(s.begin, text[:min(len(text), 8)]...)
		}
		cut := len(text)
		if !last {
			cut = runeStart(text, cut-hold)
		}
		switch {
		case bytes.IndexByte(text, 0) >= 0:
			return nameReason(s.begin, Binary), nil
		case !utf8.Valid(text[:cut]):
			return nameReason(s.begin, InvalidUTF8), nil
		}
		s.split(text, cut)
		s.position += int64(cut)
		if last {
			s.finish(s.position)
			return isText, nil
		}
		kept = copy(buf, text[cut:])
	}
}

// runeStart moves at back to the beginning of a character.
func runeStart(text []byte, at int) int {
	for i := at; i > max(0, at-utf8.UTFMax); i-- {
		if utf8.RuneStart(text[i]) {
			return i
		}
	}
	return at // this is not UTF-8
}

// split ends a document at every separator that begins before cut.
func (s *scanner) split(text []byte, cut int) {
	from := s.skip
	s.skip = 0
	for len(s.separator) > 0 && from < cut {
		i := bytes.Index(text[from:], s.separator)
		if i < 0 || from+i >= cut {
			break
		}
		s.look(text[from : from+i])
		s.finish(s.position + int64(from+i))
		from += i + len(s.separator)
		s.start = s.position + int64(from)
	}
	if from < cut {
		s.look(text[from:cut])
	} else {
		s.skip = from - cut
	}
}

func (s *scanner) look(text []byte) { s.visible = s.visible || !isBlank(text) }

// isBlank tells whether text has nothing but white space.
func isBlank(text []byte) bool { return len(bytes.TrimSpace(text)) == 0 }

// finish ends the current document.
func (s *scanner) finish(end int64) {
	if s.visible {
		s.documents = append(s.documents, newDocument(s.file, s.base+s.start, s.base+end))
	}
	s.visible = false
}
