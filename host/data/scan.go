package data

import (
	"bytes"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/cage-qat/cage/internal/regular"
)

// document is a stretch of a file.
type document struct {
	file       *sourceFile
	start, end int64
}

// read returns the text of the document.
func (d *document) read() (string, error) {
	file, err := regular.Open(d.file.path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text := make([]byte, d.end-d.start)
	if _, err := file.ReadAt(text, d.start); err != nil {
		return "", fmt.Errorf("%s changed while it was being read: %w", d.file.path, err)
	}
	return string(text), nil
}

// scanFile finds the documents of a file without keeping its text.
func scanFile(source *sourceFile, separator string) ([]document, Reason, error) {
	file, err := regular.Open(source.path)
	if err != nil {
		return nil, isText, err
	}
	defer file.Close()
	s := &scanner{source: source, separator: []byte(separator)}
	found, err := s.run(file, 1<<20)
	if err != nil {
		return nil, isText, fmt.Errorf("%s: %w", source.path, err)
	}
	if found != isText {
		return nil, found, nil
	}
	if len(s.documents) == 0 {
		return nil, Empty, nil
	}
	return s.documents, isText, nil
}

// scanner goes through a file in chunks. Documents that are nothing but white
// space are left out.
type scanner struct {
	source    *sourceFile
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
	return at // no UTF-8 anyway
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

func (s *scanner) look(text []byte) {
	s.visible = s.visible || len(bytes.TrimSpace(text)) > 0
}

// finish ends the current document.
func (s *scanner) finish(end int64) {
	if s.visible {
		s.documents = append(s.documents, document{s.source, s.start, end})
	}
	s.visible = false
}
