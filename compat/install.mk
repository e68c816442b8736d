# Installing the C face: headers, library, pkg-config file, manual pages. Included by the Makefile at the root, or
#
#   make -f compat/install.mk install-compat BIN=target/release DESTDIR=/tmp/stage PREFIX=/usr

COMPAT := $(patsubst %/,%,$(dir $(abspath $(lastword $(MAKEFILE_LIST)))))
COMPAT_VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' $(COMPAT)/../Cargo.toml | head -n 1)
PREFIX ?= /usr/local
BIN ?= $(COMPAT)/../target/release

.PHONY: install-compat
install-compat: $(BIN)/libringroad_c.so $(BIN)/libringroad_libsze2.so ## what programs in C need, to $DESTDIR$PREFIX (/usr/local)
	install -Dm644 -t $(DESTDIR)$(PREFIX)/include $(COMPAT)/include/*.h
	install -Dm644 -t $(DESTDIR)$(PREFIX)/include/net $(COMPAT)/include/net/*.h
	install -Dm644 $(BIN)/libringroad_c.so $(DESTDIR)$(PREFIX)/lib/libringroad.so.0
	ln -sf libringroad.so.0 $(DESTDIR)$(PREFIX)/lib/libringroad.so
	install -Dm644 $(BIN)/libringroad_libsze2.so $(DESTDIR)$(PREFIX)/lib/libsze2.so.0
	ln -sf libsze2.so.0 $(DESTDIR)$(PREFIX)/lib/libsze2.so
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig
	for library in ringroad libsze2; do \
		sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(COMPAT_VERSION)|' $(COMPAT)/pkgconfig/$$library.pc.in \
			>$(DESTDIR)$(PREFIX)/lib/pkgconfig/$$library.pc; \
	done
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/man/man3 $(COMPAT)/man/*.3
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/man/man4 $(COMPAT)/man/*.4
	@# Each page is found under all the names that it begins with.
	for page in $(notdir $(wildcard $(COMPAT)/man/*.3)); do \
		for name in $$(sed -n '/^\.Sh NAME/,/^\.Nd/s/^\.Nm \([a-z0-9_]*\).*/\1/p' $(COMPAT)/man/$$page); do \
			[ "$$name.3" = "$$page" ] || ln -sf "$$page" $(DESTDIR)$(PREFIX)/share/man/man3/"$$name.3"; \
		done; \
	done
