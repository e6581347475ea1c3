package backup

import (
	"fmt"
	"io"
	"sync/atomic"
)

// Progress is what is being done with a backup and how far that is, in words for a person. The zero value is ready; nil takes no notice. It
// may be asked while a backup is read.
type Progress struct {
	now atomic.Pointer[func() string]
}

// String is empty before anything is done.
func (p *Progress) String() string {
	if now := p.now.Load(); now != nil {
		return (*now)()
	}
	return ""
}

func (p *Progress) set(now func() string) {
	if p != nil {
		p.now.Store(&now)
	}
}

// doing is for what cannot be counted.
func (p *Progress) doing(what string) { p.set(func() string { return what }) }

// reading counts the bytes of a file of that size as they are read.
func (p *Progress) reading(content io.Reader, size int64) io.Reader {
	counted := &countedReader{Reader: content}
	p.set(func() string {
		return fmt.Sprintf("reading, %.1f of %.1f MB", megabytes(counted.n.Load()), megabytes(size))
	})
	return counted
}

// counting returns what counts, one by one.
func (p *Progress) counting(what string) *atomic.Int64 {
	var n atomic.Int64
	p.set(func() string { return fmt.Sprintf("%s, %d so far", what, n.Load()) })
	return &n
}

func megabytes(n int64) float64 { return float64(n) / 1e6 }

// countedReader counts what is read from it.
type countedReader struct {
	io.Reader
	n atomic.Int64
}

// Read implements io.Reader.
func (r *countedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.n.Add(int64(n))
	return n, err
}
