package workload

import (
	"slices"
)

// bin is the desired content of one work of a side.
type bin struct {
	index int
	// work is the existing work; nil if it is to be created.
	work *work
	// objects are those that belong to this work, and size their bytes.
	objects []*object
	size    int
	// moving are objects that move to other works, and stay until those have applied them.
	moving []*object
}

// closed reports whether the work is being deleted: it keeps its content until it is gone, and takes no objects.
func (b *bin) closed() bool {
	return b.work != nil && !b.work.DeletionTimestamp.IsZero()
}

func (b *bin) contains(o *object) bool {
	if b.work == nil {
		return false
	}
	_, ok := b.work.manifests[o.id]
	return ok
}

func (b *bin) add(o *object) {
	b.objects = append(b.objects, o)
	b.size += len(o.raw)
}

// takes reports whether there is room for an object.
func (b *bin) takes(o *object, limit int) bool {
	return !b.closed() && b.size+len(o.raw) <= limit
}

// split assigns objects to works. Each stays in its work, unless the work has become too large; then as few as possible move. An object
// without a work gets the first one with room, or a new one. An object that is larger than the limit has a work of its own.
func split(objects []*object, works []*work, limit int) []*bin {
	bins := make([]*bin, len(works))
	for i, w := range works {
		bins[i] = &bin{index: w.Index, work: w}
	}
	unassigned := keepAssigned(objects, bins, limit)
	for _, b := range bins {
		unassigned = append(unassigned, b.shrink(limit)...)
	}
	for _, o := range objects { // in their order, not in that of their removal from works
		if slices.Contains(unassigned, o) {
			bins = assign(o, bins, limit)
		}
	}
	keepUntilApplied(objects, bins)
	return bins
}

// keepAssigned leaves objects in their works, and returns those without one. An object in several works is on its way from one to
// another; it belongs to the one that has room for it.
func keepAssigned(objects []*object, bins []*bin, limit int) (unassigned []*object) {
	moving := map[*object][]*bin{}
	for _, o := range objects {
		var in []*bin
		for _, b := range bins {
			if b.contains(o) {
				in = append(in, b)
			}
		}
		switch len(in) {
		case 0:
			unassigned = append(unassigned, o)
		case 1:
			in[0].add(o)
		default:
			moving[o] = in
		}
	}
	for _, o := range objects {
		if in := moving[o]; in != nil {
			assigned := slices.IndexFunc(in, func(b *bin) bool { return b.takes(o, limit) || len(b.objects) == 0 && !b.closed() })
			in[max(assigned, 0)].add(o)
		}
	}
	return unassigned
}

// shrink removes objects until the others fit: the smallest one that suffices, or else the largest first.
func (b *bin) shrink(limit int) (out []*object) {
	for b.size > limit && len(b.objects) > 1 && !b.closed() {
		excess, victim := b.size-limit, b.objects[0]
		for _, o := range b.objects[1:] {
			size, best := len(o.raw), len(victim.raw)
			if enough := best >= excess; enough && size >= excess && size < best || !enough && size > best {
				victim = o
			}
		}
		b.objects = slices.DeleteFunc(b.objects, func(o *object) bool { return o == victim })
		b.size -= len(victim.raw)
		out = append(out, victim)
	}
	return out
}

// assign assigns an object to a work.
func assign(o *object, bins []*bin, limit int) []*bin {
	for _, b := range bins {
		if b.takes(o, limit) {
			b.add(o)
			return bins
		}
	}
	b := &bin{}
	for slices.ContainsFunc(bins, func(other *bin) bool { return other.index == b.index }) {
		b.index++
	}
	b.add(o)
	return append(bins, b)
}

// keepUntilApplied keeps objects in the works that they leave until the new works have applied them.
func keepUntilApplied(objects []*object, bins []*bin) {
	assigned := map[*object]*bin{}
	for _, b := range bins {
		for _, o := range b.objects {
			assigned[o] = b
		}
	}
	for _, b := range bins {
		for _, o := range objects {
			to := assigned[o]
			if to != b && b.contains(o) && (to.work == nil || !to.work.has(o.id)) {
				b.moving = append(b.moving, o)
			}
		}
	}
}

// manifests returns all objects of the work, in their order there.
func (b *bin) manifests(order []*object) (all []*object) {
	in := make(map[*object]bool, len(b.objects)+len(b.moving))
	for _, list := range [][]*object{b.objects, b.moving} {
		for _, o := range list {
			in[o] = true
		}
	}
	for _, o := range order {
		if in[o] {
			all = append(all, o)
		}
	}
	return all
}
