package backup

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"go.etcd.io/bbolt"
)

// The kinds of the pages of bbolt, and the sizes of their parts: the header of a page, an element of it, and the header of a bucket.
const (
	branchPage, leafPage, freelistPage    = 0x01, 0x02, 0x10
	headerSize, elementSize, bucketHeader = 16, 16, 16
	// bucketFlag is that of an element of a leaf whose value is a bucket.
	bucketFlag = 0x01
	// noFreelist is in place of the page of a freelist that is not written, as etcd has it.
	noFreelist = -1
	// longCount says that the first number of a freelist is its length.
	longCount = 1<<16 - 1
)

// meta is what each of the first two pages says of a transaction, from metaStart on. Root is the page that leads to all buckets.
type meta struct{ Root, Sequence, Freelist, Pages, Transaction, Checksum int64 }

const metaStart = headerSize + 16

// page is a part of the file that has elements, which give offsets from themselves.
type page struct {
	// name is for messages.
	name string
	// at and size are where it is in the file, with the pages that it goes on in.
	at, size int64
	kind     uint16
	count    int
}

// pageCheck checks the pages of a database without trusting any: bbolt follows the references in them to wherever they lead, in part in
// goroutines of its own, where a fault ends the process.
type pageCheck struct {
	file     io.ReaderAt
	pageSize int64
	// used are the pages that are known to be used or free. Each is so once.
	used []bool
}

// checkPages checks the pages that a transaction reads, unless ctx ends first. What bbolt does with them then stays within the file.
func checkPages(ctx context.Context, file *os.File, tx *bbolt.Tx) error {
	c := &pageCheck{file: file, pageSize: int64(tx.DB().Info().PageSize)}
	latest, err := c.metaOf(tx)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if there := info.Size() / c.pageSize; latest.Pages < 2 || latest.Pages > there {
		return damaged("it has %d pages, and should have %d", there, latest.Pages)
	}
	c.used = make([]bool, latest.Pages)
	c.used[0], c.used[1] = true, true
	if err := c.tree(ctx, latest.Root, true); err != nil || latest.Freelist == noFreelist {
		return err
	}
	if err := c.freelist(ctx, latest.Freelist); err != nil {
		return err
	}
	if lost := slices.Index(c.used, false); lost >= 0 {
		return damaged("page %d is neither used nor free", lost)
	}
	return nil
}

func damaged(format string, args ...any) error { return fmt.Errorf("it is damaged: "+format, args...) }

// metaOf is what the page of a transaction says, of which bbolt has checked the checksum.
func (c *pageCheck) metaOf(tx *bbolt.Tx) (latest meta, err error) {
	for id := range int64(2) {
		from := io.NewSectionReader(c.file, id*c.pageSize+metaStart, int64(binary.Size(latest)))
		if err := binary.Read(from, binary.NativeEndian, &latest); err != nil {
			return latest, err
		}
		if latest.Transaction == int64(tx.ID()) {
			return latest, nil
		}
	}
	return latest, damaged("no page is of the transaction %d", tx.ID())
}

// tree checks a page and all below it: those of a bucket, or those that lead to the buckets, which have no others in them.
func (c *pageCheck) tree(ctx context.Context, id int64, buckets bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p, err := c.use(id)
	if err != nil {
		return err
	}
	switch p.kind {
	case branchPage:
		return c.branch(ctx, p, buckets)
	case leafPage:
		return c.leaf(ctx, p, buckets)
	}
	return damaged("%s is of the kind %#x, and should be a branch or a leaf", p.name, p.kind)
}

// branch checks the pages below one.
func (c *pageCheck) branch(ctx context.Context, p page, buckets bool) error {
	if p.count == 0 {
		return damaged("%s leads nowhere", p.name)
	}
	return c.forEach(p, func(at int64, element []byte) error {
		position, keySize := number(element[0:]), number(element[4:])
		if err := p.has(at, position, keySize, 0); err != nil {
			return err
		}
		return c.tree(ctx, pageID(element[8:]), buckets)
	})
}

// leaf checks the keys and values of a page, all or none of which are buckets.
func (c *pageCheck) leaf(ctx context.Context, p page, buckets bool) error {
	return c.forEach(p, func(at int64, element []byte) error {
		flags, position, keySize, valueSize := number(element[0:]), number(element[4:]), number(element[8:]), number(element[12:])
		if err := p.has(at, position, keySize, valueSize); err != nil {
			return err
		}
		switch isBucket := flags&bucketFlag != 0; {
		case isBucket != buckets:
			return damaged("%s has a bucket where there is none, or none where there is one", p.name)
		case isBucket:
			return c.bucket(ctx, p, at+position+keySize, valueSize)
		}
		return nil
	})
}

// bucket checks a bucket, which is in pages of its own if its header names one, and behind it otherwise.
func (c *pageCheck) bucket(ctx context.Context, in page, at, size int64) error {
	if size < bucketHeader {
		return damaged("%s has a bucket of %d bytes", in.name, size)
	}
	header := make([]byte, bucketHeader)
	if _, err := c.file.ReadAt(header, at); err != nil {
		return err
	}
	if root := pageID(header); root != 0 {
		return c.tree(ctx, root, false)
	}
	p := page{name: "a bucket in " + in.name, at: at + bucketHeader, size: size - bucketHeader}
	if p.size < headerSize {
		return damaged("%s has %d bytes", p.name, p.size)
	}
	if _, err := c.readHeader(&p); err != nil {
		return err
	}
	if p.kind != leafPage {
		return damaged("%s is of the kind %#x, and should be a leaf", p.name, p.kind)
	}
	return c.leaf(ctx, p, false)
}

// freelist checks that the pages are free that a page says are.
func (c *pageCheck) freelist(ctx context.Context, id int64) error {
	p, err := c.use(id)
	if err != nil {
		return err
	}
	if p.kind != freelistPage {
		return damaged("%s is of the kind %#x, and should be the list of free pages", p.name, p.kind)
	}
	ids := bufio.NewReader(io.NewSectionReader(c.file, p.at+headerSize, p.size-headerSize))
	count := int64(p.count)
	if p.count == longCount {
		if err := binary.Read(ids, binary.NativeEndian, &count); err != nil {
			return err
		}
	}
	for range count {
		var free int64
		switch err := binary.Read(ids, binary.NativeEndian, &free); {
		case errors.Is(err, io.EOF):
			return damaged("%s has fewer free pages than it says", p.name)
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
		if err := c.take(free, 1); err != nil {
			return err
		}
	}
	return nil
}

// use is a page, with those that it goes on in, of which nothing else may use one.
func (c *pageCheck) use(id int64) (page, error) {
	if id < 0 || id >= int64(len(c.used)) {
		return page{}, damaged("page %d is none of its %d", id, len(c.used))
	}
	p := page{name: fmt.Sprintf("page %d", id), at: id * c.pageSize}
	header, err := c.readHeader(&p)
	if err != nil {
		return page{}, err
	}
	if is := pageID(header); is != id {
		return page{}, damaged("%s says that it is page %d", p.name, is)
	}
	pages := 1 + number(header[12:])
	p.size = pages * c.pageSize
	return p, c.take(id, pages)
}

// take notes so many pages in a row as used or free.
func (c *pageCheck) take(id, pages int64) error {
	if all := int64(len(c.used)); id < 0 || id >= all || pages > all-id {
		return damaged("%d pages from page %d on are none of its %d", pages, id, all)
	}
	taken := c.used[id:][:pages]
	for i, used := range taken {
		if used {
			return damaged("page %d is used twice, or used and free", id+int64(i))
		}
		taken[i] = true
	}
	return nil
}

func (c *pageCheck) readHeader(p *page) ([]byte, error) {
	header := make([]byte, headerSize)
	if _, err := c.file.ReadAt(header, p.at); err != nil {
		return nil, err
	}
	p.kind, p.count = binary.NativeEndian.Uint16(header[8:]), int(binary.NativeEndian.Uint16(header[10:]))
	return header, nil
}

// forEach hands on the elements of a page, with where they are in the file.
func (c *pageCheck) forEach(p page, do func(at int64, element []byte) error) error {
	size := int64(p.count) * elementSize
	if size > p.size-headerSize {
		return damaged("%s has %d elements in %d bytes", p.name, p.count, p.size)
	}
	elements := make([]byte, size)
	if _, err := c.file.ReadAt(elements, p.at+headerSize); err != nil {
		return err
	}
	for i := range int64(p.count) {
		if err := do(p.at+headerSize+i*elementSize, elements[i*elementSize:][:elementSize]); err != nil {
			return err
		}
	}
	return nil
}

// has fails if the key and the value of an element are not in the page.
func (p page) has(element, position, keySize, valueSize int64) error {
	if keySize == 0 || element+position+keySize+valueSize > p.at+p.size {
		return damaged("%s has a key of %d bytes and a value of %d, %d bytes from its start", p.name, keySize, valueSize,
			element-p.at+position)
	}
	return nil
}

// pageID is the number of a page; no page has a negative one.
func pageID(b []byte) int64 { return int64(binary.NativeEndian.Uint64(b)) } //nolint:gosec // what is too large is negative, so none

func number(b []byte) int64 { return int64(binary.NativeEndian.Uint32(b)) }
