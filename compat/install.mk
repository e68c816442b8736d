# Installing the C face: headers, library, pkg-config file, manual pages. Included by the Makefile at the root, or
#
#   make -f compat/install.mk install-compat RELEASE=target/release DESTDIR=/tmp/stage PREFIX=/usr

COMPAT := $(patsubst %/,%,$(dir $(abspath $(lastword $(MAKEFILE_LIST)))))
COMPAT_VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' $(COMPAT)/../Cargo.toml | head -n 1)
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
STRIP ?= strip --strip-unneeded
RELEASE ?= $(COMPAT)/../target/release

.PHONY: install-compat
install-compat: $(RELEASE)/libringroad_c.so $(RELEASE)/libringroad_libsze2.so ## what programs in C need, to $DESTDIR$PREFIX (/usr/local)
	install -Dm644 -t $(DESTDIR)$(PREFIX)/include $(COMPAT)/include/*.h
	for folder in net netmap-2012 netmap-2012/net; do \
		install -Dm644 -t $(DESTDIR)$(PREFIX)/include/$$folder $(COMPAT)/include/$$folder/*.h; \
	done
	install -Dm644 $(RELEASE)/libringroad_c.so $(DESTDIR)$(LIBDIR)/libringroad.so.0
	ln -sf libringroad.so.0 $(DESTDIR)$(LIBDIR)/libringroad.so
	install -Dm644 $(RELEASE)/libringroad_libsze2.so $(DESTDIR)$(LIBDIR)/libsze2.so.0
	ln -sf libsze2.so.0 $(DESTDIR)$(LIBDIR)/libsze2.so
	$(STRIP) $(DESTDIR)$(LIBDIR)/libringroad.so.0 $(DESTDIR)$(LIBDIR)/libsze2.so.0
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig
	for library in ringroad libsze2; do \
		sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))|' \
			-e 's|@VERSION@|$(COMPAT_VERSION)|' $(COMPAT)/pkgconfig/$$library.pc.in \
			>$(DESTDIR)$(LIBDIR)/pkgconfig/$$library.pc; \
	done
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/man/man3 $(COMPAT)/man/*.3
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/man/man4 $(COMPAT)/man/*.4
	@# Each page is found under all the names that it begins with.
	for page in $(notdir $(wildcard $(COMPAT)/man/*.3)); do \
		for name in $$(sed -n '/^\.Sh NAME/,/^\.Nd/s/^\.Nm \([a-z0-9_]*\).*/\1/p' $(COMPAT)/man/$$page); do \
			[ "$$name.3" = "$$page" ] || ln -sf "$$page" $(DESTDIR)$(PREFIX)/share/man/man3/"$$name.3"; \
		done; \
	done
