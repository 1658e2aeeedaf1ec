// SPDX-License-Identifier: Apache-2.0
// The Hessian where limbs touch each other: stored as a dense matrix, but only the entries that its
// factor may have are computed.

// The columns below the diagonal for each row, highest first.
class FilledOrder {
 public:
  // Collects the entries of the tree, those of contacts, and those that elimination from the last
  // row to the first adds.
  template <typename D>
  void Find(const Structure& m, const Work<D>& w, const Island<D>& island) {
    const int nv = m.n.nv;
    std::uint64_t below[kMaxDofs];
    for (int i = 0; i < nv; ++i) {
      below[i] = 0;
      for (int p = 1; p < m.tree.count[i]; ++p) below[i] |= Bit(m.tree.column[m.tree.adr[i] + p]);
    }
    for (int i = 0; i < island.num_contacts; ++i) {
      const Pair& pair = *w.contacts[island.contacts[i]].pair;
      std::uint64_t rest = 0;
      for (int q = pair.num_dofs - 1; q >= 0; --q) {
        below[pair.dofs[q]] |= rest;
        rest |= Bit(pair.dofs[q]);
      }
    }
    for (int k = nv - 1; k >= 0; --k) {
      count_[k] = 0;
      for (std::uint64_t rest = below[k]; rest;) {
        const int j = 63 - __builtin_clzll(rest);
        rest &= ~Bit(j);
        below[j] |= rest;
        columns_[k][count_[k]++] = static_cast<std::uint8_t>(j);
      }
    }
  }

  // Factorize and Solve, over all dofs.
  template <typename D>
  void Factorize(const Factor<D>& f, int nv) const {
    for (int k = nv - 1; k >= 0; --k) {
      D* const row = Row(f, k);
      const std::uint8_t* const columns = columns_[k];
      const D inverse = 1.0 / row[-k];
      f.inverse[k] = inverse;
      for (int p = 0; p < count_[k]; ++p) {
        D& entry = row[-columns[p]];
        const D a = entry * inverse;
        D* const other = Row(f, columns[p]);
        for (int q = p; q < count_[k]; ++q) other[-columns[q]] -= a * row[-columns[q]];
        entry = a;
      }
    }
  }
  template <typename D>
  void Solve(const Factor<D>& f, D* x, int nv) const {
    for (int k = nv - 1; k >= 0; --k) {
      const D* const row = Row(f, k);
      const D xk = x[k];
      for (int p = 0; p < count_[k]; ++p) x[columns_[k][p]] -= row[-columns_[k][p]] * xk;
    }
    for (int k = 0; k < nv; ++k) {
      const D* const row = Row(f, k);
      D sum = x[k] * f.inverse[k];
      for (int p = 0; p < count_[k]; ++p) sum -= row[-columns_[k][p]] * x[columns_[k][p]];
      x[k] = sum;
    }
  }

  // Sets all entries to those of the inertia matrix.
  template <typename D>
  void Fill(const Structure& m, const D* inertia, const Factor<D>& f) const {
    for (int k = 0; k < m.n.nv; ++k) {
      D* const row = Row(f, k);
      for (int p = 0; p < count_[k]; ++p) row[-columns_[k][p]] = 0.0;
      const int from = m.tree.adr[k];
      for (int p = 0; p < m.tree.count[k]; ++p) row[-m.tree.column[from + p]] = inertia[from + p];
    }
  }

 private:
  static std::uint64_t Bit(int i) { return std::uint64_t{1} << i; }
  // Returns a row such that [-column] is the entry of a column.
  template <typename D>
  static D* Row(const Factor<D>& f, int k) {
    return f.entries + f.order->adr[k] + k;
  }

  std::int32_t count_[kMaxDofs];
  std::uint8_t columns_[kMaxDofs][kMaxDofs];
};
