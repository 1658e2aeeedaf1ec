// SPDX-License-Identifier: Apache-2.0
// Vectors, rotations and spatial quantities of several simulations at once: D is a Lanes type, C
// the type of a model's numbers. Spatial vectors have the rotation first and are about the centre
// of mass of the body's tree, as in MuJoCo.
template <typename D>
struct Vec3 {
  D x, y, z;
};
template <typename D>
LANES_INLINE Vec3<D> operator+(Vec3<D> a, Vec3<D> b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z};
}
template <typename D>
LANES_INLINE Vec3<D> operator-(Vec3<D> a, Vec3<D> b) {
  return {a.x - b.x, a.y - b.y, a.z - b.z};
}
template <typename D>
LANES_INLINE Vec3<D> operator-(Vec3<D> a) {
  return {-a.x, -a.y, -a.z};
}
template <typename D, typename T>
LANES_INLINE Vec3<D> operator*(Vec3<D> a, T s) {
  return {a.x * s, a.y * s, a.z * s};
}
template <typename D>
LANES_INLINE D Dot(Vec3<D> a, Vec3<D> b) {
  return a.x * b.x + a.y * b.y + a.z * b.z;
}
template <typename D>
LANES_INLINE Vec3<D> Cross(Vec3<D> a, Vec3<D> b) {
  return {a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}
template <typename D, typename C>
LANES_INLINE Vec3<D> Fixed(const C* v) {
  return {D(v[0]), D(v[1]), D(v[2])};
}
template <typename M, typename D>
LANES_INLINE Vec3<D> Select(M m, Vec3<D> a, Vec3<D> b) {
  return {Select(m, a.x, b.x), Select(m, a.y, b.y), Select(m, a.z, b.z)};
}

template <typename D>
struct Quat {
  D w, x, y, z;
};
template <typename D>
LANES_INLINE Quat<D> operator*(Quat<D> a, Quat<D> b) {
  return {a.w * b.w - a.x * b.x - a.y * b.y - a.z * b.z, a.w * b.x + a.x * b.w + a.y * b.z - a.z * b.y,
          a.w * b.y - a.x * b.z + a.y * b.w + a.z * b.x, a.w * b.z + a.x * b.y - a.y * b.x + a.z * b.w};
}
// A quaternion of length zero becomes the identity, as in MuJoCo.
template <typename D>
LANES_INLINE Quat<D> Normalized(Quat<D> q) {
  const D length = Sqrt(q.w * q.w + q.x * q.x + q.y * q.y + q.z * q.z);
  const auto some = length >= 1e-15;
  const D scale = 1.0 / Select(some, length, D(1.0));
  return {Select(some, q.w * scale, D(1.0)), Keep(some, q.x * scale), Keep(some, q.y * scale),
          Keep(some, q.z * scale)};
}

// Rows of a rotation.
template <typename D>
struct Mat3 {
  D m[9];
};
template <typename D>
LANES_INLINE Mat3<D> Rotation(Quat<D> q) {
  const D x2 = q.x + q.x, y2 = q.y + q.y, z2 = q.z + q.z;
  const D xx = q.x * x2, yy = q.y * y2, zz = q.z * z2, xy = q.x * y2, xz = q.x * z2, yz = q.y * z2;
  const D wx = q.w * x2, wy = q.w * y2, wz = q.w * z2;
  return {{1.0 - (yy + zz), xy - wz, xz + wy, xy + wz, 1.0 - (xx + zz), yz - wx, xz - wy, yz + wx,
           1.0 - (xx + yy)}};
}
template <typename D, typename C>
LANES_INLINE Vec3<D> Rotate(const Mat3<D>& r, const C* v) {
  return {r.m[0] * v[0] + r.m[1] * v[1] + r.m[2] * v[2], r.m[3] * v[0] + r.m[4] * v[1] + r.m[5] * v[2],
          r.m[6] * v[0] + r.m[7] * v[1] + r.m[8] * v[2]};
}
template <typename D>
LANES_INLINE Vec3<D> Rotate(const Mat3<D>& r, Vec3<D> v) {
  return {r.m[0] * v.x + r.m[1] * v.y + r.m[2] * v.z, r.m[3] * v.x + r.m[4] * v.y + r.m[5] * v.z,
          r.m[6] * v.x + r.m[7] * v.y + r.m[8] * v.z};
}
template <typename D>
LANES_INLINE Vec3<D> RotateBack(const Mat3<D>& r, Vec3<D> v) {
  return {r.m[0] * v.x + r.m[3] * v.y + r.m[6] * v.z, r.m[1] * v.x + r.m[4] * v.y + r.m[7] * v.z,
          r.m[2] * v.x + r.m[5] * v.y + r.m[8] * v.z};
}
template <typename D, typename C>
LANES_INLINE Mat3<D> Product(const Mat3<D>& r, const C* k) {
  Mat3<D> out;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) {
      out.m[3 * i + j] = r.m[3 * i] * k[j] + r.m[3 * i + 1] * k[3 + j] + r.m[3 * i + 2] * k[6 + j];
    }
  }
  return out;
}

template <typename D>
struct Spatial {
  Vec3<D> a;  // rotation, torque
  Vec3<D> l;  // translation, force
};
template <typename D>
LANES_INLINE Spatial<D> operator+(const Spatial<D>& p, const Spatial<D>& q) {
  return {p.a + q.a, p.l + q.l};
}
template <typename D>
LANES_INLINE Spatial<D> operator-(const Spatial<D>& p, const Spatial<D>& q) {
  return {p.a - q.a, p.l - q.l};
}
template <typename D>
LANES_INLINE Spatial<D> operator*(const Spatial<D>& p, D s) {
  return {p.a * s, p.l * s};
}
template <typename D>
LANES_INLINE D Dot(const Spatial<D>& p, const Spatial<D>& q) {
  return Dot(p.a, q.a) + Dot(p.l, q.l);
}
template <typename D>
LANES_INLINE Spatial<D> CrossMotion(const Spatial<D>& v, const Spatial<D>& m) {
  return {Cross(v.a, m.a), Cross(v.a, m.l) + Cross(v.l, m.a)};
}
template <typename D>
LANES_INLINE Spatial<D> CrossForce(const Spatial<D>& v, const Spatial<D>& f) {
  return {Cross(v.a, f.a) + Cross(v.l, f.l), Cross(v.a, f.l)};
}

// A body's inertia: the symmetric matrix, mass times offset, mass: MuJoCo's cinert.
template <typename D>
struct Inertia {
  D xx, yy, zz, xy, xz, yz;
  Vec3<D> h;
  D mass;
};
template <typename D>
LANES_INLINE Spatial<D> operator*(const Inertia<D>& i, const Spatial<D>& v) {
  const Vec3<D> r{i.xx * v.a.x + i.xy * v.a.y + i.xz * v.a.z, i.xy * v.a.x + i.yy * v.a.y + i.yz * v.a.z,
                  i.xz * v.a.x + i.yz * v.a.y + i.zz * v.a.z};
  return {r + Cross(i.h, v.l), v.l * i.mass - Cross(i.h, v.a)};
}
