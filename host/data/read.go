package data

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/cage-qat/cage/host/data/source"
	"github.com/cage-qat/cage/internal/vfs"
)

type sourceResult struct {
	source    *sourceFile
	documents []document
	reason    Reason // why the whole file was left out, or isText
	rows      int64
	empty     int64 // rows with only white space
	bad       int64 // rows left out because they hold no text
	firstBad  error
}

func (p *preparation) readFile(file *sourceFile) (found sourceResult, err error) {
	found.source = file
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", file.path, withoutPath(err))
		}
	}()
	raw := func(in io.Reader) io.Reader { return &progressReader{in, p} }
	text, direct, close, err := file.open(raw)
	defer close()
	if err != nil {
		return found, err
	}
	scan := func(s scanner, in io.Reader, chunk int64) error {
		s.separator = separatorForm(p.options.Separator)
		err := s.run(in, int(chunk))
		if found.reason = s.reason; s.reason == isText {
			found.documents = s.documents
		}
		return err
	}
	if direct != nil && file.format == source.Text { // most files are small
		return found, scan(scanner{file: file.number}, text, min(1<<20, max(file.size, 1<<12)))
	}
	spool, err := p.spools.get()
	if err != nil {
		return found, err
	}
	defer p.spools.put(spool)
	if file.format != source.Text {
		err = p.readRows(text, direct, &found, spool)
	} else {
		err = scan(scanner{file: spool.number, base: spool.size}, io.TeeReader(text, spool), 1<<20)
	}
	if err == nil {
		err = spool.flush()
	}
	return found, err
}

// withoutPath removes the path from an operating system's error, for messages that contain it
// already.
func withoutPath(err error) error {
	if pathError, ok := err.(*os.PathError); ok {
		return pathError.Err
	}
	return err
}

func (p *preparation) readRows(
	text io.Reader, direct vfs.File, found *sourceResult, spool *spool,
) error {
	if found.source.format == source.Parquet {
		p.advance(0, found.source.size) // it is not read sequentially
	}
	field := p.options.Field
	for row, err := range found.source.rows(text, direct, []string{field}) {
		if err != nil {
			return err
		}
		row.Extract(field)
		found.rows++
		if found.rows&0xfff == 0 && p.ctx.Err() != nil {
			return p.ctx.Err()
		}
		switch {
		case row.Err != nil && p.options.SkipBad:
			if found.bad++; found.firstBad == nil {
				found.firstBad = fmt.Errorf("%s: %w", found.source.path, row.Err)
			}
		case row.Err != nil:
			hint := "--skip-bad leaves out rows without text"
			if row.Err.Field {
				hint = "--field names another field, conversations need --kind chat, " + hint
			}
			return fmt.Errorf("%w; %s", row.Err, hint)
		case isBlank(row.Text):
			found.empty++
		default:
			begin := spool.size
			if _, err := spool.Write(row.Text); err != nil {
				return err
			}
			found.documents = append(found.documents, document{begin, spool.size - begin, spool.number})
		}
	}
	if found.rows == 0 {
		found.reason = Empty
	}
	return nil
}

// progressReader counts the bytes read as progress, and fails once the preparation is cancelled.
type progressReader struct {
	r io.Reader
	p *preparation
}

func (r *progressReader) Read(b []byte) (int, error) {
	if err := r.p.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.r.Read(b)
	r.p.advance(0, int64(n))
	return n, err
}

// separatorForm returns an expression that matches the separator, also if its lines end with \r\n,
// or nil if the separator is empty.
func separatorForm(separator string) *regexp.Regexp {
	if separator == "" {
		return nil
	}
	return regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(separator), "\n", `\r?\n`))
}

// scanner splits a file into documents, chunk by chunk. Documents with only white space are left
// out.
type scanner struct {
	file      int32          // index of the text file with the documents
	base      int64          // offset of the text in that file
	separator *regexp.Regexp // nil: the file is one document
	documents []document
	reason    Reason // why the file is left out

	position int64 // of the chunk in the file
	start    int64 // of the current document
	skip     int   // bytes at the front of the chunk that belong to a separator
	visible  bool  // the current document has more than white space so far
}

func (s *scanner) run(r io.Reader, chunk int) error {
	// The end of a chunk is held back, because a character or a separator may continue beyond it. A
	// match is not longer than the expression.
	hold := utf8.UTFMax - 1
	if s.separator != nil {
		hold = max(hold, len(s.separator.String()))
	}
	buf := make([]byte, chunk+hold+utf8.UTFMax)
	held := 0 // bytes at the front of buf that were held back
	for {
		n, err := io.ReadFull(r, buf[held:])
		last := err == io.EOF || err == io.ErrUnexpectedEOF
		if err != nil && !last {
			return err
		}
		text := buf[:held+n]
		if held == 0 && s.position == 0 { // the first chunk
			s.skip = len(text) - len(bytes.TrimPrefix(text, []byte(source.UTF8Mark)))
			s.start = int64(s.skip)
		}
		cut := len(text)
		if !last { // at a character boundary, if this is UTF-8
			cut -= hold
			for at := cut; at > max(0, cut-utf8.UTFMax); at-- {
				if utf8.RuneStart(text[at]) {
					cut = at
					break
				}
			}
		}
		switch {
		case bytes.IndexByte(text, 0) >= 0:
			s.reason = Binary
			return nil
		case !utf8.Valid(text[:cut]):
			s.reason = InvalidUTF8
			return nil
		}
		s.split(text, cut)
		s.position += int64(cut)
		if last {
			if s.finish(s.position); len(s.documents) == 0 {
				s.reason = Empty
			}
			return nil
		}
		held = copy(buf, text[cut:])
	}
}

// split ends a document at every separator that begins before text[cut].
func (s *scanner) split(text []byte, cut int) {
	from := s.skip
	s.skip = 0
	for s.separator != nil && from < cut {
		found := s.separator.FindIndex(text[from:])
		if found == nil || from+found[0] >= cut {
			break
		}
		s.look(text[from : from+found[0]])
		s.finish(s.position + int64(from+found[0]))
		from += found[1]
		s.start = s.position + int64(from)
	}
	if from < cut {
		s.look(text[from:cut])
	} else {
		s.skip = from - cut
	}
}

func (s *scanner) look(text []byte) { s.visible = s.visible || !isBlank(text) }

func isBlank(text []byte) bool { return len(bytes.TrimSpace(text)) == 0 }

func (s *scanner) finish(end int64) {
	if s.visible {
		s.documents = append(s.documents, document{s.base + s.start, end - s.start, s.file})
	}
	s.visible = false
}
